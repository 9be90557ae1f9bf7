"""Each of three clouds gives notice of a machine's end in its own way; where there is none, nobody asks again."""

from __future__ import annotations

import asyncio
import json
from datetime import UTC, datetime

import msgspec
import pytest

from tests.worker.answers import Answering, Asked, answers
from tests.worker.kept import quick
from windlass.config import Settings
from windlass.engine.outside import Outside
from windlass.worker.spot import Notice, wait_for_notice

NOW = datetime(2026, 1, 1, 12, tzinfo=UTC)
ACTION = json.dumps({"action": "terminate", "time": "2026-01-01T12:01:30Z"})
PREEMPT = json.dumps({"Events": [{"EventType": "Preempt", "Resources": ["vm-7"]}]})
OTHERS = json.dumps({"Events": [{"EventType": "Preempt", "Resources": ["vm-8"]}, {"EventType": "Reboot"}]})


PAUSES: list[float] = []


async def passing(seconds: float) -> None:
    """Wait no longer than it takes others to go on."""
    PAUSES.append(seconds)
    await asyncio.sleep(0)


async def noticed(answering: Answering, cloud: str = "auto", asked: list[Asked] | None = None) -> Notice | None:
    """Return the notice of a machine whose cloud answers so."""
    async with answers(answering, asked) as url:
        base = quick().worker
        worker = msgspec.structs.replace(base, spot_notice=cloud, spot_url=url)
        async with asyncio.timeout(60):
            return await wait_for_notice(Settings(worker=worker), Outside(pause=passing), clock=lambda: NOW)


class Ec2:
    """EC2, which withdraws the machine after a few questions."""

    def __init__(self, quiet_count: int = 2) -> None:
        self.quiet_count = quiet_count
        self.tokens = 0

    def __call__(self, request: Asked) -> tuple[int, str]:
        """Answer as the metadata of EC2 do; each token is good for two questions."""
        method, path, headers = request
        if (method, path) == ("PUT", "/latest/api/token") and "x-aws-ec2-metadata-token-ttl-seconds" in headers:
            self.tokens += 1
            return 200, f"token-{self.tokens}"
        if (method, path) != ("GET", "/latest/meta-data/spot/instance-action"):
            return 404, ""
        if headers.get("x-aws-ec2-metadata-token") != f"token-{self.tokens}" or self.quiet_count == 3:
            self.quiet_count -= 1
            return 401, ""
        self.quiet_count -= 1
        return (404, "") if self.quiet_count >= 0 else (200, ACTION)


def google(request: Asked) -> tuple[int, str, dict[str, str]]:
    """Answer as Google's metadata do."""
    _, path, headers = request
    if headers.get("metadata-flavor") != "Google" or path != "/computeMetadata/v1/instance/preempted":
        return 403, "", {}
    return 200, "TRUE", {"Metadata-Flavor": "Google"}


class AzureHost:
    """Azure, which preempts a neighbour first and then this machine."""

    def __init__(self) -> None:
        self.asked_count = 0

    def __call__(self, request: Asked) -> tuple[int, str]:
        """Answer as Azure's metadata do."""
        _, path, headers = request
        if headers.get("metadata") != "true":
            return 400, ""
        if path.startswith("/metadata/instance/compute/name?api-version="):
            return 200, "vm-7"
        if path.startswith("/metadata/scheduledevents?api-version="):
            self.asked_count += 1
            return 200, OTHERS if self.asked_count < 3 else PREEMPT
        return 404, ""


async def test_ec2_gives_notice_with_what_is_left() -> None:
    """The time of the action less a margin; 404 means that none is planned."""
    assert Notice("aws", 75.0) == await noticed(Ec2())


async def test_the_cloud_is_asked_every_two_seconds() -> None:
    """W11: of the two minutes that EC2 leaves, and of the half of others, as little as possible is lost."""
    PAUSES.clear()

    await noticed(Ec2())

    assert [2.0, 2.0] == PAUSES


async def test_a_token_that_is_over_is_asked_for_anew() -> None:
    """A machine may live longer than a token."""
    cloud = Ec2(quiet_count=3)

    assert Notice("aws", 75.0) == await noticed(cloud)
    assert 2 == cloud.tokens


async def test_google_gives_half_a_minute() -> None:
    """Less a margin, from the moment it is seen."""
    assert Notice("gcp", 25.0) == await noticed(google)


async def test_azure_names_the_machines_it_takes() -> None:
    """A neighbour's notice is not ours."""
    cloud = AzureHost()

    assert Notice("azure", 25.0) == await noticed(cloud)
    assert 3 == cloud.asked_count


async def test_a_cloud_that_is_named_is_not_searched_for() -> None:
    """Its own questions only."""
    asked: list[Asked] = []

    assert Notice("gcp", 25.0) == await noticed(google, "gcp", asked)
    assert {"/computeMetadata/v1/instance/preempted"} == {path for _, path, _ in asked}


async def test_where_there_is_no_cloud_each_is_asked_once() -> None:
    """And never again."""
    asked: list[Asked] = []

    assert None is await noticed(lambda _: (404, ""), "auto", asked)
    assert 3 == len(asked)


async def test_nothing_is_asked_when_it_is_turned_off() -> None:
    """Not even whether there is a cloud."""
    asked: list[Asked] = []

    assert None is await noticed(google, "off", asked)
    assert [] == asked


@pytest.mark.parametrize("text", ["", "[]", '{"time": 5}', '{"time": "soon"}', '{"time": "2026-01-01T12:00:30"}'])
async def test_a_notice_without_a_time_is_a_notice(text: str) -> None:
    """Two minutes are what EC2 promises."""

    def answering(request: Asked) -> tuple[int, str]:
        return 200, "token" if request[0] == "PUT" else text

    assert Notice("aws", 105.0) == await noticed(answering, "aws")
