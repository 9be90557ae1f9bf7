"""Run `windlass` on the plain event loop of asyncio, and measure how long each callback holds it.

    python -m tests.fuzz.loopmeter server --database URL

A hold is CPU time of the loop's thread within one callback: what other processes take does not count, and neither does
what other threads of this one do. The delay of a ticker in real time is told beside it, as information.
On SIGUSR1 the process prints a line `measured {…}` with the longest hold so far, and begins anew.
"""

from __future__ import annotations

import asyncio
import signal
import sys
import time
from contextvars import Context, ContextVar
from typing import Any

import msgspec
import uvloop

from windlass.server.app import Door

TICK_S = 0.01
WORD = "measured "
LONG_S = 0.05
"""Holds above this are kept, one for each place and route."""
MOST_KEPT = 50
_request: ContextVar[str] = ContextVar("request", default="")


class Hold(msgspec.Struct, frozen=True):
    """One callback that held the loop."""

    seconds: float
    what: str


class Measured(msgspec.Struct, frozen=True):
    """What was measured since the last time."""

    longest: Hold
    callbacks: int
    latest_tick_s: float
    long: list[Hold]
    """The longest hold of each place and route where one was above LONG_S."""


class Meter:
    """Measures the callbacks of the loop."""

    def __init__(self) -> None:
        self._begin()

    def _begin(self) -> None:
        self.longest_s = 0.0
        self.what = ""
        self.callbacks = 0
        self.latest_tick_s = 0.0
        self.long: dict[str, float] = {}

    def keep(self, callback: Any, context: Context, seconds: float) -> None:
        """Count a callback."""
        self.callbacks += 1
        if seconds <= self.longest_s and seconds <= LONG_S:
            return
        what = _described(callback, context)
        if seconds > self.longest_s:
            self.longest_s, self.what = seconds, what
        if seconds > LONG_S and (what in self.long or len(self.long) < MOST_KEPT):
            self.long[what] = max(seconds, self.long.get(what, 0.0))

    def take(self) -> Measured:
        """Return what was measured, and begin anew."""
        long = [Hold(seconds, what) for what, seconds in sorted(self.long.items(), key=lambda kept: -kept[1])]
        taken = Measured(Hold(self.longest_s, self.what), self.callbacks, self.latest_tick_s, long)
        self._begin()
        return taken


METER = Meter()


class MeasuredLoop(asyncio.SelectorEventLoop):
    """The plain loop with a ticker, which tells how late the loop is."""

    def run_forever(self) -> None:
        """Run, with the ticker."""
        self._due_s = self.time() + TICK_S
        self.call_at(self._due_s, self._tick)
        super().run_forever()

    def _tick(self) -> None:
        METER.latest_tick_s = max(METER.latest_tick_s, self.time() - self._due_s)
        self._due_s = self.time() + TICK_S
        self.call_at(self._due_s, self._tick)


def _described(callback: Any, context: Context) -> str:
    """Return what a callback was: the task's coroutine or the function, and the request that it was for."""
    owner = getattr(callback, "__self__", None)
    if isinstance(owner, asyncio.Task):
        what = f"{getattr(owner.get_coro(), '__qualname__', owner)}"
    else:
        what = getattr(callback, "__qualname__", repr(callback))
    request = context.get(_request, "")
    return f"{what} {request}".strip()[:300]


def install() -> None:
    """Measure every callback from now on, and know the request that it is for."""
    run, call = asyncio.Handle._run, Door.__call__

    def measured(self: Any) -> None:
        # A callback that cancels its own handle is forgotten there.
        callback, context = self._callback, self._context
        begun_s = time.thread_time()
        try:
            run(self)
        finally:
            METER.keep(callback, context, time.thread_time() - begun_s)

    async def named(self: Door, scope: Any, receive: Any, send: Any) -> None:
        _request.set(f"{scope.get('method')} {scope.get('path')} {scope.get('query_string', b'').decode('latin-1')}")
        await call(self, scope, receive, send)

    asyncio.Handle._run = measured  # type: ignore[method-assign]
    Door.__call__ = named  # type: ignore[method-assign]
    uvloop.new_event_loop = MeasuredLoop  # type: ignore[assignment]
    signal.signal(signal.SIGUSR1, lambda *_: _tell())


def _tell() -> None:
    print(f"{WORD}{msgspec.json.encode(METER.take()).decode()}", file=sys.stderr, flush=True)


if __name__ == "__main__":
    # As a module of its own name, so that what measures is what is asked.
    from tests.fuzz import loopmeter
    from windlass.cli import main

    loopmeter.install()
    main()
