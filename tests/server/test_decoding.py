"""Decoding a body: what it may cost, in items, bytes and turns, whatever the body holds. No database is asked."""

from __future__ import annotations

import asyncio
import sys
import tracemalloc
from collections.abc import Callable
from functools import partial
from typing import Any

import msgspec
import pytest

from windlass.errors import BodyTooLarge, InvalidInput
from windlass.server.bodies import BodyBudget, read_body
from windlass.server.decoding import MANY, RENAMED, TURN, BodyDecoder
from windlass.server.problems import problem_of
from windlass.server.route import MIB
from windlass.wire.jobs import BatchRequest, JobRequest
from windlass.wire.schedules import DeclareRequest, SchedulesRequest
from windlass.wire.work import BeatRequest, ClaimRequest, CompleteRequest, RegisterRequest, ReportRequest

CALLS = 5000
"""Python functions that may be called for a body that is refused: more than twice the longest list but one."""

ID = "0197c2a0-0000-7000-8000-0000000"
"""All of an id but its last five digits."""


def filled(head: bytes, item: bytes, tail: bytes) -> bytes:
    """Return a body of a mebibyte whose list or object repeats an item."""
    count = (MIB - len(head) - len(tail)) // (len(item) + 1)
    return head + b",".join([item] * count) + tail


def named(head: bytes, name: str, tail: bytes) -> bytes:
    """Return a body whose object has a hundred thousand names."""
    return head + b",".join(b'"%s":1' % name.format(n).encode() for n in range(100_000)) + tail


def cost_of(work: Callable[[], Any]) -> tuple[int, int, str]:
    """Return how many functions were called, how many bytes were had at most, and the field that was refused."""
    calls, refused = 0, ""

    def count(_frame: Any, event: str, _argument: Any) -> None:
        nonlocal calls
        calls += event == "call"

    tracemalloc.start()
    sys.setprofile(count)
    try:
        work()
    except InvalidInput as error:
        refused = error.field
    finally:
        sys.setprofile(None)
        peak = tracemalloc.get_traced_memory()[1]
        tracemalloc.stop()
    return calls, peak, refused


def refusal_of(work: Callable[[], Any]) -> dict[str, Any]:
    """Return the problem that a caller is told."""
    with pytest.raises(InvalidInput) as refused:
        work()
    problem: dict[str, Any] = msgspec.json.decode(problem_of(refused.value).content)
    return problem


HOSTILE: list[tuple[type[msgspec.Struct], bytes, str]] = [
    (BatchRequest, filled(b'{"jobs":[{"task":"t","zzz":1},', b"{}", b"]}"), "jobs"),
    (BatchRequest, filled(b'{"jobs":[', b'{"task":"t"}', b"]}"), "jobs"),
    (BatchRequest, filled(b'{"jobs":[', b'{"task":"t","maxRetries":1.0}', b"]}"), "jobs"),
    (BatchRequest, filled(b'{"jobs":[{"task":"t","tags":[', b'"a"', b"]}]}"), "jobs[0].tags"),
    (BatchRequest, filled(b'{"jobs":[{', b'"task":"t"', b"}]}"), "jobs[0]"),
    (BatchRequest, named(b'{"jobs":[{"task":"t","headers":{', "h{}", b"}}]}"), "jobs[0].headers"),
    (BatchRequest, named(b"{", "aB{}", b"}"), "aB0"),
    (BatchRequest, b'{"jobs":[{"task":"t","' + b"aB" * (MIB // 2) + b'":1}]}', "jobs[0]." + "aB" * 96),
    (SchedulesRequest, filled(b'{"schedules":[{"zzz":1},', b"{}", b"]}"), "schedules"),
    (DeclareRequest, filled(b'{"owner":"o","keep":[', b'"a"', b"]}"), "keep"),
    (DeclareRequest, filled(b'{"owner":"o","schedules":[', b"{}", b"]}"), "schedules"),
    (ReportRequest, filled(b'{"worker_id":"w","reports":[', b"{}", b"]}"), "reports"),
    (ReportRequest, filled(b'{"worker_id":"w","logs":[{"lines":[', b"{}", b"]}]}"), "logs[0].lines"),
    (RegisterRequest, named(b'{"worker_id":"w","signatures":{', "t{}", b"}}"), "signatures"),
    (RegisterRequest, filled(b'{"workerId":"w","tasks":[', b'"t"', b"]}"), "tasks"),
    (CompleteRequest, named(b'{"fence":1,', "m{}", b"}"), "body"),
    (ClaimRequest, filled(b'{"worker_id":"w","capabilities":{"a":[', b"1", b"]}}"), "capabilities.a"),
    (ClaimRequest, filled(b'{"worker_id":"w","capabilities":{"a":[', b"[]", b"]}}"), "capabilities.a"),
    (ClaimRequest, filled(b'{"worker_id":"w","capabilities":{"a":[[', b"{}", b"]]}}"), "capabilities.a"),
    (
        ClaimRequest,
        filled(b'{"worker_id":"w","capabilities":{"labels":{"b":[', b'""', b"]}}}"),
        "capabilities.labels.b",
    ),
]


@pytest.mark.parametrize(("struct", "body", "field"), HOSTILE, ids=[f"{s.__name__} {f[:20]}" for s, _, f in HOSTILE])
def test_rel_t9_a_body_is_refused_before_it_is_walked(struct: type[msgspec.Struct], body: bytes, field: str) -> None:
    """T9: too long a list, too many names, or a name that stands for nothing costs no work for each of its entries."""
    decoder = BodyDecoder(struct)
    problem = refusal_of(lambda: decoder.decode(body))  # what is made once for a type is made now

    calls, peak, refused = cost_of(lambda: decoder.decode(body))

    assert field == refused == problem["errors"][0]["field"]
    assert calls < CALLS
    assert peak < 8 * MIB


@pytest.mark.parametrize(("item", "name"), [(b"[]", "b"), (b"1", "c"), (b"{}", "d")])
def test_rel_t9_an_object_in_a_capability_is_not_walked(item: bytes, name: str) -> None:
    """T9: that it is there is the label; whatever it holds is passed over."""
    body = filled(b'{"worker_id":"w","capabilities":{"a":{"%s":[' % name.encode(), item, b"]}}}")

    decoder = BodyDecoder(ClaimRequest)
    decoder.decode(body)  # what is made once for a type is made now
    calls, peak, refused = cost_of(lambda: decoder.decode(body))

    assert "" == refused
    assert calls < CALLS
    assert peak < 8 * MIB


def test_rel_s8_schedules_of_a_body_share_the_days_that_they_leave_out() -> None:
    """S8: a thousand schedules may name four hundred days each, which are mostly the same."""
    schedule = b'{"name":"%d","task":"t","cron":"@daily","exclude":["2026-12-25","--01-01"]}'

    made = BodyDecoder(SchedulesRequest).decode(b'{"schedules":[' + schedule % 1 + b"," + schedule % 2 + b"]}")

    first, second = made.schedules
    assert ("2026-12-25", "--01-01") == first.exclude
    assert first.exclude is second.exclude


def test_rel_t9_only_so_many_objects_may_have_names_of_others() -> None:
    """T9: putting names into ours is bounded over the whole body, also where every list is within its own bound."""
    line = b'{"Text":"a","at":"2026-01-01T00:00:00Z"}'
    chunk = (
        b'{"jobId":"0197c2a0-0000-7000-8000-0000000000aa","fence":1,"seq":1,"lines":['
        + b",".join([line] * 1000)
        + b"]}"
    )
    body = b'{"worker_id":"w","logs":[' + b",".join([chunk] * (RENAMED // 1000 + 1)) + b"]}"

    with pytest.raises(InvalidInput, match=f"more than {RENAMED} objects"):
        BodyDecoder(ReportRequest).decode(body)


async def test_rel_t9_a_large_body_is_decoded_in_turns() -> None:
    """T9: while a body of many values is decoded, others have the event loop again and again."""
    exclude = [f"20{year:02}-01-01" for year in range(100)]
    schedule = {"name": "n", "task": "t", "cron": "@daily", "exclude": exclude}
    body = msgspec.json.encode({"schedules": [schedule] * 1000})
    turns, ended = 0, False

    def turn() -> None:
        nonlocal turns
        turns += 1
        if not ended:
            asyncio.get_running_loop().call_soon(turn)

    turn()
    made = await BodyDecoder(SchedulesRequest).decode_in_turns(body, None, partial(asyncio.sleep, 0))
    ended = True

    assert 1000 == len(made.schedules)
    assert body.count(b",") // TURN <= turns


@pytest.mark.parametrize(
    ("struct", "value"),
    [
        (BatchRequest, {"jobs": [{"task": f"t{n}", "payload": list(range(200)), "tags": ["a"]} for n in range(100)]}),
        (JobRequest, {"task": "t", "payload": list(range(MANY)), "retry_policy": {"delays": [1, 2]}}),
        (BeatRequest, {"worker_id": "w", "held": [{"job_id": f"{ID}{n:05}", "fence": 1} for n in range(10_000)]}),
    ],
    ids=["jobs", "payload", "held"],
)
def test_a_large_body_means_what_a_small_one_does(struct: type[msgspec.Struct], value: dict[str, Any]) -> None:
    """Taken apart or not, a body becomes the same struct; payloads stay byte for byte."""
    body = msgspec.json.encode(value)
    assert body.count(b",") >= MANY

    made = BodyDecoder(struct).decode(body)

    assert msgspec.json.encode(msgspec.json.decode(body, type=struct)) == msgspec.json.encode(made)


@pytest.mark.parametrize("spare", [b"", b'"maxRetries":1,', b'"payload":[%s1],' % (b"1," * MANY)])
def test_a_wrong_item_is_named_by_its_place(spare: bytes) -> None:
    """The place in the list is told however the body was decoded."""
    body = b'{"jobs":[{"task":"t"},{%s"task":"t"},{"task":"t","tags":["a",1]}]}' % spare

    with pytest.raises(InvalidInput) as refused:
        BodyDecoder(BatchRequest).decode(body)

    assert "jobs[2].tags[1]" == refused.value.field


@pytest.mark.parametrize(
    ("length", "is_good"), [("0" * 5000 + "2", True), ("0" * 20 + "9" * 30, False), ("9" * 5000, False)]
)
async def test_rel_t9_a_length_of_many_digits_is_no_fault(length: str, is_good: bool) -> None:
    """The declared length of a body is read for what it says, or is too large."""

    async def receive() -> dict[str, Any]:
        return {"type": "http.request", "body": b"{}"}

    with BodyBudget(1 << 20, 25).share() as share:
        reading = read_body(receive, {"content-length": length}, limit=100, timeout_s=600, share=share)
        if is_good:
            assert b"{}" == await reading
        else:
            with pytest.raises(BodyTooLarge):
                await reading
