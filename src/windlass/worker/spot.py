"""Spot notices: a cloud says, seconds before, that it takes the machine away (W11).

Each cloud has an address on the machine itself that is asked every two seconds. Which cloud it is, is found out once;
where none answers nothing is asked again. On a notice the fleet drains within what is left (fleet.py).
"""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from datetime import datetime
from typing import Any, Literal, Protocol

import httpx2
import msgspec

from windlass.clock import Clock, system_clock
from windlass.config import Settings
from windlass.engine.outside import Outside
from windlass.httpclient import AsyncClient, trusted_for

TIMEOUT_S = 1.0
POLL_S = 2.0
ADDRESS = "http://169.254.169.254"
"""Where each of the three answers, by number: a name might take long to be resolved where there is no cloud."""
AWS_NOTICE_S, AWS_MARGIN_S = 120.0, 15.0
SHORT_NOTICE_S, SHORT_MARGIN_S = 30.0, 5.0
TOKEN_LIFE_S = 21_600

Name = Literal["aws", "gcp", "azure"]


class Notice(msgspec.Struct, frozen=True):
    """The machine is taken away: by whom, and how long work may go on."""

    cloud: Name
    within_s: float


class Cloud(Protocol):
    """A cloud, as a machine of it asks."""

    async def is_here(self, client: httpx2.AsyncClient) -> bool:
        """Say whether this machine is one of its own."""

    async def notice(self, client: httpx2.AsyncClient) -> Notice | None:
        """Return the notice, if it has been given."""


class Aws:
    """EC2: a token, then the action that is planned; 404 while none is."""

    def __init__(self, clock: Clock = system_clock) -> None:
        self._clock = clock
        self._token: str | None = None

    async def is_here(self, client: httpx2.AsyncClient) -> bool:
        """Say whether it hands out a token."""
        self._token = await self._new_token(client)
        return self._token is not None

    async def notice(self, client: httpx2.AsyncClient) -> Notice | None:
        """Return the notice of a stop, a hibernation or an end, with what is left until its time."""
        if self._token is None:
            self._token = await self._new_token(client)
        headers = {"X-aws-ec2-metadata-token": self._token or ""}
        answer = await client.get("/latest/meta-data/spot/instance-action", headers=headers)
        if answer.status_code == httpx2.codes.UNAUTHORIZED:
            self._token = None
        if answer.status_code != httpx2.codes.OK:
            return None
        return Notice("aws", self._left_s(answer.content))

    async def _new_token(self, client: httpx2.AsyncClient) -> str | None:
        headers = {"X-aws-ec2-metadata-token-ttl-seconds": str(TOKEN_LIFE_S)}
        answer = await client.put("/latest/api/token", headers=headers)
        return answer.text if answer.status_code == httpx2.codes.OK and answer.text else None

    def _left_s(self, content: bytes) -> float:
        try:
            at = datetime.fromisoformat(str(_object(content).get("time")))
            left_s = (at - self._clock()).total_seconds()
        except (ValueError, TypeError):
            left_s = AWS_NOTICE_S
        return max(0.0, min(left_s, AWS_NOTICE_S) - AWS_MARGIN_S)


class Gcp:
    """Google: a word that turns TRUE."""

    async def is_here(self, client: httpx2.AsyncClient) -> bool:
        """Say whether its metadata are served."""
        answer = await self._ask(client)
        return answer.status_code == httpx2.codes.OK and answer.headers.get("Metadata-Flavor") == "Google"

    async def notice(self, client: httpx2.AsyncClient) -> Notice | None:
        """Return the notice, if the machine is being preempted."""
        answer = await self._ask(client)
        given = answer.status_code == httpx2.codes.OK and answer.text.strip().upper() == "TRUE"
        return Notice("gcp", SHORT_NOTICE_S - SHORT_MARGIN_S) if given else None

    async def _ask(self, client: httpx2.AsyncClient) -> httpx2.Response:
        return await client.get("/computeMetadata/v1/instance/preempted", headers={"Metadata-Flavor": "Google"})


class Azure:
    """Azure: a list of events, of this machine and of its neighbours."""

    def __init__(self) -> None:
        self._machine: str | None = None

    async def is_here(self, client: httpx2.AsyncClient) -> bool:
        """Say whether the machine has a name there."""
        query = {"api-version": "2021-02-01", "format": "text"}
        answer = await client.get("/metadata/instance/compute/name", params=query, headers={"Metadata": "true"})
        if answer.status_code == httpx2.codes.OK:
            self._machine = answer.text.strip() or None
        return self._machine is not None

    async def notice(self, client: httpx2.AsyncClient) -> Notice | None:
        """Return the notice, if this machine is to be preempted."""
        query = {"api-version": "2020-07-01"}
        answer = await client.get("/metadata/scheduledevents", params=query, headers={"Metadata": "true"})
        if answer.status_code != httpx2.codes.OK:
            return None
        events = _object(answer.content).get("Events")
        if any(self._is_ours(event) for event in (events if isinstance(events, list) else [])):
            return Notice("azure", SHORT_NOTICE_S - SHORT_MARGIN_S)
        return None

    def _is_ours(self, event: Any) -> bool:
        if not isinstance(event, dict) or event.get("EventType") != "Preempt":
            return False
        machines = event.get("Resources") or []
        return not machines or self._machine is None or self._machine in machines


async def wait_for_notice(settings: Settings, outside: Outside, clock: Clock = system_clock) -> Notice | None:
    """Return the notice when the cloud gives it; None if there is no cloud that could."""
    wanted = settings.worker.spot_notice
    clouds: Mapping[Name, Cloud] = {"aws": Aws(clock), "gcp": Gcp(), "azure": Azure()}
    if wanted == "off":
        return None
    base = settings.worker.spot_url or ADDRESS
    # A proxy has other machines' metadata.
    async with AsyncClient(base_url=base, timeout=TIMEOUT_S, trust_env=False, verify=trusted_for(base)) as client:
        cloud = await find_cloud(client, clouds) if wanted == "auto" else clouds[wanted]
        if cloud is None:
            return None
        while True:
            try:
                if (notice := await cloud.notice(client)) is not None:
                    return notice
            except httpx2.HTTPError:
                pass  # asked again
            await outside.pause(POLL_S)


async def find_cloud(client: httpx2.AsyncClient, clouds: Mapping[Name, Cloud]) -> Cloud | None:
    """Return the cloud that this machine belongs to; all are asked at once, and once."""
    answers = await asyncio.gather(*(cloud.is_here(client) for cloud in clouds.values()), return_exceptions=True)
    return next((cloud for cloud, here in zip(clouds.values(), answers, strict=True) if here is True), None)


def _object(content: bytes) -> dict[str, Any]:
    try:
        return msgspec.json.decode(content, type=dict[str, Any])
    except msgspec.MsgspecError:
        return {}
