"""The options of a job: read as people write them, laid over each other, said to the server. Pure."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import Any

import msgspec
import pytest

from windlass.client.options import JobOptions, Options
from windlass.errors import InvalidInput
from windlass.wire.jobs import JobRequest, Policy
from windlass.wire.tasks import TaskDefaults

NOW = datetime(2026, 1, 1, 12, tzinfo=UTC)


def said(**options: Any) -> dict[str, Any]:
    """Return what a request would say."""
    return Options().over(**options).fields("t", b'{"b":1,"a":2}')


@pytest.mark.parametrize(
    ("options", "fields"),
    [
        ({}, {}),
        ({"delay": "1h30m"}, {"delay": 5400.0}),
        ({"delay": timedelta(seconds=2)}, {"delay": 2.0}),
        ({"delay": 0}, {"delay": 0.0}),
        ({"timeout": "5m"}, {"timeout_seconds": 300.0}),
        ({"timeout": None}, {"timeout_seconds": None}),
        ({"max_retries": 0}, {"max_attempts": 1}),
        ({"run_at": NOW}, {"run_at": NOW}),
        ({"start_deadline": "1m"}, {"start_within": 60.0}),
        ({"start_deadline": NOW}, {"start_deadline": NOW}),
        ({"labels": ["gpu"], "tags": ("a", "b")}, {"labels": ("gpu",), "tags": ("a", "b")}),
        ({"priority": 0, "queue": "mail"}, {"priority": 0, "queue": "mail"}),
        ({"retry": "stepped"}, {"retry_policy": "stepped"}),
        (
            {"retry": {"backoff": "table", "delays": [timedelta(minutes=1), "2m"]}},
            {"retry_policy": Policy(kind="table", delays=(60.0, "2m"))},
        ),
        ({"delivery": "at_most_once"}, {"delivery": "at_most_once"}),
        ({"unique": False, "unique_for": None, "headers": None}, {"without": ["headers", "unique_for", "unique_key"]}),
    ],
)
def test_options_are_said_as_the_api_has_them(options: Any, fields: Any) -> None:
    """Spans as text, number or timedelta; what was not said is left to the server; the server can read it."""
    found = said(**options)

    assert fields == found
    body = msgspec.json.encode({"task": "t", **found})
    assert "t" == msgspec.json.decode(body, type=JobRequest).task


def test_unique_is_by_arguments_in_any_order() -> None:
    """The same arguments are the same key; another task or other arguments another."""
    one = Options().over(unique=True)

    def key(task: str, payload: bytes) -> Any:
        return one.fields(task, payload)["unique_key"]

    assert key("t", b'{"b":1,"a":2}') == key("t", b'{"a":2, "b":1}')
    assert 3 == len({key("t", b'{"a":2}'), key("t", b'{"a":3}'), key("u", b'{"a":2}')})
    assert "mine" == Options().over(unique_key="mine", unique_for="1h").fields("t", b"{}")["unique_key"]


def test_what_is_taken_away_and_said_again_counts() -> None:
    """What a task has is not to come back from the servers, unless it is said once more."""
    task = Options().over(unique=True, unique_for="1h", start_deadline="5m")

    without = task.over(unique=False, unique_for=None, start_deadline=None)
    again = without.over(start_deadline="1m", unique_key="k")

    assert {"without": ["start_deadline", "unique_for", "unique_key"]} == without.fields("t", b"{}")
    assert {"start_within": 60.0, "unique_key": "k", "without": ["unique_for"]} == again.fields("t", b"{}")


def test_what_is_said_later_counts_and_the_first_stays_as_it_was() -> None:
    """Options are immutable; a later `delay` takes the place of an earlier `run_at`."""
    first = Options().over(queue="a", run_at=NOW, tags=["x"])

    second = first.over(queue="b", delay=5)

    assert ("a", NOW, None) == (first.queue, first.run_at, first.delay)
    assert ("b", None, 5.0, ("x",)) == (second.queue, second.run_at, second.delay, second.tags)


@pytest.mark.parametrize(
    ("options", "error", "problem"),
    [
        ({"delay": "soon"}, InvalidInput, "delay: 'soon' is no duration"),
        ({"delay": -1}, InvalidInput, "negative"),
        ({"delay": 1, "run_at": NOW}, InvalidInput, "Give one of them"),
        ({"run_at": "tomorrow"}, InvalidInput, "Use `delay` for a span"),
        ({"timeout": "1ms"}, InvalidInput, "less than a second"),
        ({"tags": "abc"}, InvalidInput, "give a list"),
        ({"retry": {"kind": "sometimes"}}, InvalidInput, "no retry policy"),
        ({"retry": 5}, InvalidInput, "neither the name of a preset"),
        ({"max_retries": -1}, InvalidInput, "give 0 to 999"),
        ({"max_retries": 1000}, InvalidInput, "give 0 to 999"),
        ({"priority": 500}, InvalidInput, "^priority: Expected int <= 127"),
        ({"max_attempts": 0}, InvalidInput, "^max_attempts: Expected int >= 1"),
        ({"max_attempts": "3"}, InvalidInput, "^max_attempts: Expected int | null, got str"),
        ({"max_lost": 0}, InvalidInput, "^max_lost: Expected int >= 1"),
        ({"retry": "steped"}, InvalidInput, "^retry: Invalid enum value 'steped'"),
        ({"retry": {"factor": 0.5}}, InvalidInput, "factor"),
        ({"retry": Policy(base="soon")}, InvalidInput, r"^retry\.base: it is no duration"),
        ({"queue": "a/b"}, InvalidInput, "^queue: Expected str matching"),
        ({"timeout": "20y"}, InvalidInput, "timeout"),
        ({"delivery": "often"}, InvalidInput, "^delivery: Invalid enum value 'often'"),
        ({"headers": {"a": object()}}, InvalidInput, "^headers: "),
        ({"concurrency_key": "k"}, InvalidInput, "concurrency_key: it would limit nothing yet. Leave it out"),
        ({"prioritty": 5}, TypeError, "There is no option 'prioritty'"),
    ],
)
def test_what_cannot_be_read_is_refused_at_once(options: Any, error: type[Exception], problem: str) -> None:
    """Where it is said, with the name of the option."""
    with pytest.raises(error, match=problem):
        Options().over(**options)


SAID: dict[str, Any] = {
    "queue": "mail",
    "priority": 0,
    "delay": 5,
    "run_at": NOW,
    "timeout": None,
    "max_attempts": 3,
    "max_retries": 2,
    "max_lost": 1,
    "retry": {"kind": "fixed"},
    "delivery": "at_most_once",
    "idempotency_key": "k",
    "unique": True,
    "unique_key": "k",
    "unique_for": "1h",
    "start_deadline": "5m",
    "labels": [],
    "tags": [],
    "headers": {},
    "tenant": "acme",
}
OF_ONE_JOB = {"run_at", "idempotency_key", "tenant"}


def test_there_is_a_value_for_every_option() -> None:
    """An option that is added must be published, or be one that is of one job only."""
    assert set(JobOptions.__annotations__) == set(SAID)


@pytest.mark.parametrize("name", list(SAID))
def test_every_option_of_a_task_is_published(name: str) -> None:
    """So that a job by name has it too; also where it says that there is none of something."""
    published = Options().over(**{name: SAID[name]}).published()

    assert (name in OF_ONE_JOB) is (published == TaskDefaults())


def test_what_takes_an_option_away_is_said() -> None:
    """A task at hand without labels, tags or headers says so: its workers may have published others."""
    task = Options().over(labels=["eu"], tags=["x"])

    fields = task.over(labels=[], tags=[], timeout=None).fields("t", b"null")

    assert {"labels": (), "tags": (), "timeout_seconds": None} == fields
