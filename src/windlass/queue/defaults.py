"""Defaults: what a job gets for the options that it leaves open: its task's value, else that of the settings. Pure.

Who makes a job fills it in from the settings and marks what was left open; workers publish what their tasks have
(tasks.py), and `filled` puts it in the place of what the settings gave. The mark is stored with the job, so that it can
be told where each value came from. A request under an idempotency key is compared by what it named itself: what it
left open may come out otherwise when it is repeated.
"""

from __future__ import annotations

import math
from collections.abc import Awaitable, Callable, Mapping, Set
from contextlib import suppress
from typing import TYPE_CHECKING, Any, Literal

import msgspec

from windlass.job import unique_key_of

if TYPE_CHECKING:
    from windlass.queue.newjob import NewJob

Source = Literal["task", "settings"]

FIELDS: Mapping[str, str] = {
    "queue": "queue",
    "priority": "priority",
    "timeout_seconds": "timeout_s",
    "max_attempts": "max_attempts",
    "max_lost": "max_lost",
    "retry_policy": "retry",
    "delivery": "delivery",
    "labels": "labels",
    "tags": "tags",
    "headers": "headers",
    "delay": "delay_ms",
    "unique_key": "unique_key",
    "unique_for": "unique_ms",
    "start_deadline": "start_within_ms",
}
"""Options, and the fields of a job that have their values. The nth is bit n of what is stored: add to the end only."""
OPEN: Mapping[str, int] = {option: 1 << number for number, option in enumerate(FIELDS)}
"""The bit of an option that was left open."""
BY_TASK = 16
"""So many bits further: the task gave the value."""
_OF_SETTINGS = frozenset(tuple(FIELDS)[:7])
"""Options that the settings have a value for; the others are simply absent."""


Named = tuple[str, str]
"""A task by its tenant and name."""


class Defaults(msgspec.Struct, frozen=True, kw_only=True):
    """What a task gives its jobs."""

    values: Mapping[str, Any] = {}
    """By option, as the field of a job has it."""
    unique: bool = False
    """One job with the same arguments at a time: the key is made of them."""
    start_within_s: float | None = None
    """The start deadline, counted from the submit."""

    @property
    def options(self) -> int:
        """The bits of the options that it has."""
        found = opened(*self.values)
        if self.unique:
            found |= OPEN["unique_key"]
        return found if self.start_within_s is None else found | OPEN["start_deadline"]


Given = Callable[[Set[Named]], Awaitable[Mapping[Named, Defaults]]]
"""Tells what tasks give their jobs, those left out that give nothing; engine/signatures.py knows."""


async def nothing_given(names: Set[Named]) -> Mapping[Named, Defaults]:
    """Return nothing, whatever is asked for."""
    return {}


def opened(*options: str) -> int:
    """Return the bits of options that were left open."""
    return sum(OPEN[option] for option in options)


def without(named: Mapping[str, object]) -> int:
    """Return all bits but those of the options that have a value here: who names them has said them himself."""
    bits = opened(*(option for option, value in named.items() if value is not None))
    return (1 << 2 * BY_TASK - 1) - 1 & ~(bits | bits << BY_TASK)


def filled(job: NewJob, given: Defaults, *, is_submitted: bool = False) -> NewJob:
    """Return the job with what its task gives for the options that it left open.

    A job of a schedule is not submitted: its start deadline counts from its slot.
    """
    taken = job.defaults & given.options
    if not taken:
        return job
    fields = {FIELDS[option]: value for option, value in given.values.items() if taken & OPEN[option]}
    if taken & OPEN["unique_key"] and given.unique:
        with suppress(msgspec.DecodeError, RecursionError, ValueError):  # no JSON: refused in the words of newjob.py
            fields["unique_key"] = unique_key_of(job.task, job.payload)
    if taken & OPEN["start_deadline"] and given.start_within_s is not None and is_submitted:
        fields["start_within_ms"] = math.ceil(given.start_within_s * 1000)
    if fields.get("retry") is not None and not job.defaults & OPEN["max_attempts"]:
        # The job has said itself how often, and not how.
        fields["retry"] = msgspec.structs.replace(fields["retry"], max_attempts=None)
    return msgspec.structs.replace(job, **fields, defaults=job.defaults | taken << BY_TASK)


def open_fields(defaults: int) -> list[str]:
    """Return the fields of a job that its author did not name."""
    return [field for option, field in FIELDS.items() if defaults & OPEN[option]]


def sources(defaults: int) -> dict[str, Source]:
    """Return where the values of the options came from that the job did not name itself."""
    found: dict[str, Source] = {}
    for option, bit in OPEN.items():
        if defaults & bit << BY_TASK:
            found[option] = "task"
        elif defaults & bit and option in _OF_SETTINGS:
            found[option] = "settings"
    return found
