"""Answers and tries: what a server refuses is raised here as if it were refused here; and what is said again. Pure."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any
from uuid import UUID

import msgspec
import pytest

from windlass.client import requests, results
from windlass.client.answers import Answer, error_of, read
from windlass.client.results import Ending
from windlass.client.tries import LONGEST_S, NotHeard, ServerDown, Tries
from windlass.errors import (
    Conflict,
    Contention,
    Forbidden,
    InvalidInput,
    JobCancelled,
    JobExpired,
    JobFailed,
    JobFinished,
    KeyReused,
    NotFound,
    PayloadTooLarge,
    TooMany,
    Unauthorized,
    Unavailable,
    WindlassError,
    WrongMethod,
)
from windlass.job import State
from windlass.server.problems import problem_of

ID = UUID(int=7)


def round_trip(error: WindlassError) -> WindlassError:
    """Return an error as it comes back from a server."""
    reply = problem_of(error)
    headers: Mapping[str, str] = {name.decode(): value.decode() for name, value in reply.headers}
    return error_of(Answer(reply.status, reply.content, headers), where="here")


@pytest.mark.parametrize(
    "error",
    [
        NotFound("There is no job 7."),
        JobFinished("It has ended."),
        Conflict("Not now."),
        Unauthorized("No key."),
        Forbidden("Not yours."),
        Contention("Busy."),
        TooMany("Full."),
        InvalidInput("task", "it is empty."),
        InvalidInput("task", "it is empty.", index=3),
        PayloadTooLarge("payload", "too long."),
        KeyReused("idempotency_key", "used before."),
        WrongMethod("Not so.", ["GET", "POST"]),
    ],
)
def test_an_error_comes_back_as_itself(error: WindlassError) -> None:
    """The class by its code, with the same text."""
    found = round_trip(error)

    assert type(error) is type(found)
    assert str(error).removeprefix("jobs[3].") == str(found)


def test_when_to_come_back_is_told() -> None:
    """Retry-After of 429 and 503 stands in the error."""
    error = Unavailable("Soon.")
    error.retry_after_s = 7.0

    found = round_trip(error)

    assert isinstance(found, Unavailable)
    assert 7.0 == found.retry_after_s


@pytest.mark.parametrize(("status", "kind"), [(502, Unavailable), (404, NotFound), (418, WindlassError)])
def test_what_is_no_problem_of_ours_is_told_by_its_status(status: int, kind: type[WindlassError]) -> None:
    """A proxy in between may answer with a page."""
    found = error_of(Answer(status, b"<html>"), where="http://there")

    assert kind is type(found)
    assert f"http://there answered {status}" in str(found)


def test_an_answer_of_something_else_is_said_to_be_one() -> None:
    """Another program at that address does not look like a broken Windlass."""
    with pytest.raises(Unavailable, match="does not answer as a Windlass server does"):
        read(requests.get(ID), Answer(200, b"hello"), where="http://there")


def tries(within_s: float | None) -> Tries:
    """Return tries whose clock stands still, and whose pauses are the longest."""
    return Tries(within_s, monotonic=lambda: 100.0, chance=lambda: 1.0)


QUESTION = requests.get(ID)
ONCE = requests.retry(ID)


@pytest.mark.parametrize(
    ("request_", "error", "again"),
    [
        (QUESTION, Unavailable("?"), True),
        (QUESTION, NotHeard("?"), True),
        (QUESTION, TooMany("?"), True),
        (QUESTION, NotFound("?"), False),
        (ONCE, NotHeard("?"), True),
        (ONCE, Contention("?"), True),
        (ONCE, Unavailable("?"), False),
        (ONCE, Conflict("?"), False),
    ],
)
def test_only_what_is_safe_is_said_again(request_: requests.Request, error: WindlassError, again: bool) -> None:
    """A question always; what changes something only if it surely changed nothing yet."""
    if again:
        assert tries(60).pause_after(request_, error) > 0
    else:
        with pytest.raises(type(error)):
            tries(60).pause_after(request_, error)


def test_pauses_grow_to_a_bound_and_end_with_the_time() -> None:
    """0.2, 0.4 … 2 s; none that would outlast what is left; none is too long where time has no end."""
    endless, short = tries(None), tries(0.1)

    pauses = [endless.pause_after(QUESTION, Unavailable("?")) for _ in range(6)]

    assert [0.2, 0.4, 0.8, 1.6, LONGEST_S, LONGEST_S] == pauses
    with pytest.raises(Unavailable):
        short.pause_after(QUESTION, Unavailable("?"))
    assert endless.left_s is None
    assert pytest.approx(0.1) == short.left_s


class Passing:
    """Elapsed time that a test lets pass."""

    def __init__(self) -> None:
        self.now = 100.0

    def __call__(self) -> float:
        """Return the present instant."""
        return self.now


def test_where_no_server_is_a_call_ends_sooner_than_its_patience() -> None:
    """Within 2 s, unless somebody asked for patience; connecting takes no longer either. The error says how."""
    time = Passing()
    usual = Tries(10.0, down_s=2.0, monotonic=time, chance=lambda: 1.0)
    asked = Tries(10.0, monotonic=time, chance=lambda: 1.0)
    connect_s = [tries.bounded(ONCE).connect_s for tries in (usual, asked)]
    for tries in (usual, asked):
        time.now += tries.pause_after(ONCE, ServerDown("No server answers at http://there."))
    time.now = 101.8

    with pytest.raises(ServerDown, match=r"http://there\. It was tried for 1.8 s; App.patience=.* waits longer"):
        usual.pause_after(ONCE, ServerDown("No server answers at http://there."))

    assert [2.0, math.inf] == connect_s
    assert asked.pause_after(ONCE, ServerDown("No server answers at http://there.")) > 0
    assert usual.pause_after(QUESTION, Unavailable("Somebody took it, and does not answer.")) > 0


def test_jobs_are_parted_by_number_and_by_size() -> None:
    """No request is larger than a server takes; the order is kept."""
    small = [{"task": "t", "payload": msgspec.Raw(b"1")}] * 2001
    large = [{"task": "t", "payload": msgspec.Raw(b'"%b"' % (b"x" * 200_000))}] * 50

    assert ["/jobs/batch", "/jobs/batch", "/jobs"] == [request.path for request in requests.submits(small)]
    assert all(len(request.body or b"") < 8 << 20 for request in requests.submits(large))
    assert 2 == len(requests.submits(large))
    assert [] == requests.submits([])


def test_a_submit_can_be_repeated_only_if_every_job_has_a_key() -> None:
    """One without is enough to make it a second job."""
    keyed, plain = {"task": "t", "idempotency_key": "k"}, {"task": "t"}

    assert [True] == [request.repeatable for request in requests.submits([keyed, keyed])]
    assert [False] == [request.repeatable for request in requests.submits([keyed, plain])]


@pytest.mark.parametrize(
    ("state", "kind", "text"),
    [
        (State.DEAD, JobFailed, "failed at attempt 2: ValueError: no paper"),
        (State.CANCELLED, JobCancelled, "was cancelled: because"),
        (State.EXPIRED, JobExpired, "not started by its deadline"),
    ],
)
def test_why_a_job_has_no_result(state: State, kind: type[Exception], text: str) -> None:
    """One class for each end, with the job's id and its task."""
    fields: dict[str, Any] = {"id": ID, "task": "print", "state": state, "attempt": 2, "result": msgspec.Raw(b"null")}
    fields |= {"reason": "because", "error_type": "ValueError", "error_message": "no paper"}
    ending = Ending(**fields, failure_reason=None, start_deadline=None)

    found = results.failure(ending, [])

    assert (kind, ID) == (type(found), found.job_id)
    assert f"Job {ID} (print)" in str(found)
    assert text in str(found)


def ending(state: State) -> Ending:
    """Return a job in a state."""
    return Ending(
        id=ID,
        task="t",
        state=state,
        attempt=0,
        result=msgspec.Raw(b"null"),
        reason=None,
        error_type=None,
        error_message=None,
        failure_reason=None,
        start_deadline=None,
    )


@pytest.mark.parametrize(
    ("job", "without_server", "says"),
    [
        (None, None, "no server answers."),
        (ending(State.RUNNING), None, "it is running."),
        (ending(State.QUEUED), None, "no worker has taken it. Is `windlass up`"),
        (ending(State.QUEUED), "sqlite:///jobs.db", "no server was found for sqlite:///jobs.db. Is `windlass up`"),
    ],
)
def test_a_wait_that_ends_says_what_is_the_matter(job: Ending | None, without_server: str | None, says: str) -> None:
    """As far as it is known: nobody answers, nobody serves, nobody has taken the job."""
    assert says in str(results.not_yet(ID, job, without_server=without_server))
