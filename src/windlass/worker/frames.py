"""What a runner and its keeper say to each other, over a pair of sockets, as one JSON line each.

The keeper (keeper.py) is a process that runs no user code: it holds the session and sends the heartbeats, so that a
task that holds the interpreter keeps its lease. The runner (runner.py) names a job before its body begins.
Before all frames the keeper writes one line with the settings, so that no key stands on a command line.
Instants are CLOCK_MONOTONIC, which is the same in all processes of a machine.
"""

from __future__ import annotations

from uuid import UUID

import msgspec

Lease = tuple[UUID, int]
"""A job and the fence of its claim: a later claim of the same job is another lease."""


class _Frame(msgspec.Struct, frozen=True, tag_field="frame"):
    """The form of all frames."""


class Ready(_Frame, frozen=True, tag="ready"):
    """Runner: the modules are imported; the session, which is open, is for these."""

    tasks: list[str]
    signatures: dict[str, msgspec.Raw]
    """Of the tasks, as they are published (S12)."""
    queues: tuple[str, ...] = ("default",)
    """From which it claims."""


class Hold(_Frame, frozen=True, tag="hold"):
    """Runner: it has these leases."""

    jobs: list[Lease]
    limits_s: list[int | None] = []
    """How long each of them may run, in the same order; empty: no limit is known."""


class Start(_Frame, frozen=True, tag="start"):
    """Runner: the bodies of these jobs begin now. Written before they do."""

    jobs: list[Lease]


class Drop(_Frame, frozen=True, tag="drop"):
    """Runner: these leases are over: reported, given back or lost."""

    jobs: list[Lease]


class Tick(_Frame, frozen=True, tag="tick"):
    """Runner, every second from its first claim on: its claim loop advances."""

    jobs_done: int
    jobs_failed: int = 0
    """Of those done."""


class Leaving(_Frame, frozen=True, tag="leaving"):
    """Runner: everything is reported or given back; it exits. `replace`: another should take its place."""

    reason: str
    replace: bool = False
    given_back_count: int = 0


class Failed(_Frame, frozen=True, tag="failed"):
    """Runner: it cannot begin, for a reason that a person must mend, such as a module that cannot be imported."""

    reason: str


class Opened(_Frame, frozen=True, tag="opened"):
    """Keeper, as its first word: the session is open; import the modules, and claim with it.

    Said again with another session after the first was lost.
    """

    worker_id: str
    session: UUID
    lease_s: float
    renewed_at: float


class Renewed(_Frame, frozen=True, tag="renewed"):
    """Keeper: the lease runs from this instant, from before the heartbeat was sent."""

    renewed_at: float


class Cancel(_Frame, frozen=True, tag="cancel"):
    """Keeper: stop these jobs and confirm."""

    jobs: list[Lease]


class Lost(_Frame, frozen=True, tag="lost"):
    """Keeper: these leases are no longer yours; stop, and report nothing."""

    jobs: list[Lease]


class Drain(_Frame, frozen=True, tag="drain"):
    """Keeper: claim no more, finish within so long, give the rest back, and leave. 0: give back now."""

    reason: str
    within_s: float


FromRunner = Ready | Hold | Start | Drop | Tick | Leaving | Failed
FromKeeper = Opened | Renewed | Cancel | Lost | Drain

_encode = msgspec.json.Encoder().encode
_from_runner: msgspec.json.Decoder[FromRunner] = msgspec.json.Decoder(FromRunner)
_from_keeper: msgspec.json.Decoder[FromKeeper] = msgspec.json.Decoder(FromKeeper)


def line(frame: _Frame) -> bytes:
    """Return the frame as it is written."""
    return _encode(frame) + b"\n"


def from_runner(text: bytes) -> FromRunner:
    """Return what a runner said."""
    return _from_runner.decode(text)


def from_keeper(text: bytes) -> FromKeeper:
    """Return what a keeper said."""
    return _from_keeper.decode(text)
