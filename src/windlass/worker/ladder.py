"""The ladder: how a body is stopped, from asking to force. Pure.

First a flag is set, which the body may look at; then it is pressed, by an exception in its thread or by SIGTERM to its
process; then its process is killed, or its thread given up. Each rung gets its time from when it was really reached, so
that a process that stood still does not take them all at once. Who does what a rung says: pools.py.
"""

from __future__ import annotations

from typing import Literal

import msgspec

StopWhy = Literal["release", "timeout", "cancel", "lost"]
"""Why a body is stopped; what stands later counts more when both are asked for."""
Kind = Literal["thread", "async", "process"]
"""Where a body runs."""
Rung = Literal["flag", "exception", "sigterm", "sigkill", "abandoned"]

_WEIGHT: dict[StopWhy, int] = {"release": 0, "timeout": 1, "cancel": 2, "lost": 3}
_RUNGS: dict[Kind, tuple[Rung, ...]] = {
    "thread": ("flag", "exception", "abandoned"),
    "async": ("flag", "exception", "abandoned"),
    "process": ("flag", "sigterm", "sigkill", "abandoned"),
}


class Graces(msgspec.Struct, frozen=True, kw_only=True):
    """How long a body has on each rung."""

    cancel_s: float
    """After the flag, when its job was cancelled."""
    timeout_s: float
    """After the flag, when its time is over."""
    leave_s: float = 1.0
    """After the flag, when the worker leaves or its lease is gone: it must not run on for long."""
    kill_s: float = 5.0
    """After SIGTERM."""
    abandon_s: float = 2.0
    """After the exception or SIGKILL."""

    def after(self, rung: Rung, why: StopWhy) -> float:
        """Return how long a body may stay on `rung`."""
        if rung == "flag":
            asked_s = {"cancel": self.cancel_s, "timeout": self.timeout_s}
            return asked_s.get(why, min(self.leave_s, self.cancel_s))
        return self.kill_s if rung == "sigterm" else self.abandon_s


class Ladder(msgspec.Struct, frozen=True):
    """A body on its way to a stop."""

    kind: Kind
    why: StopWhy
    rung: Rung
    next_at: float | None
    """When the next rung is due; None: this was the last."""


def begin(kind: Kind, why: StopWhy, *, now: float, graces: Graces) -> Ladder:
    """Return the first rung: the flag."""
    return Ladder(kind, why, "flag", now + graces.after("flag", why))


def again(ladder: Ladder, why: StopWhy, *, now: float, graces: Graces) -> Ladder:
    """Return the ladder after another wish to stop: the weightier reason stands, and no time is won by it."""
    if _WEIGHT[why] <= _WEIGHT[ladder.why]:
        return ladder
    next_at = ladder.next_at
    if next_at is not None:
        next_at = min(next_at, now + graces.after(ladder.rung, why))
    return msgspec.structs.replace(ladder, why=why, next_at=next_at)


def step(ladder: Ladder, now: float, *, graces: Graces) -> Ladder | None:
    """Return the next rung if it is due, else None. One at a time: the body gets its time on each."""
    if ladder.next_at is None or now < ladder.next_at:
        return None
    rungs = _RUNGS[ladder.kind]
    rung = rungs[rungs.index(ladder.rung) + 1]
    next_at = None if rung == "abandoned" else now + graces.after(rung, ladder.why)
    return msgspec.structs.replace(ladder, rung=rung, next_at=next_at)
