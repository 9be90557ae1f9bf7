"""Threads for bodies: made when needed, kept, and taking their next job from the line without a hop.

A body that must be stopped gets an exception raised in its thread. One exception at most arrives in an attempt, and
none once its door is shut, so that none ever reaches the thread's own code or the next body. None is raised where a
lock of the whole process would stay taken by it: in `logging` and `threading`, whose locks others need too. One that
comes where none can leave, in a destructor or a callback of a weak reference, is raised again.
"""

from __future__ import annotations

import ctypes
import sys
import threading
import time
from collections.abc import Callable
from contextlib import suppress
from contextvars import Context as Variables
from types import FrameType

from windlass.client.context import Stopped
from windlass.worker.attempt import Attempt, Monotonic, run
from windlass.worker.capture import CURRENT
from windlass.worker.endings import Ending, Halted, raised
from windlass.worker.ladder import Rung

Next = Callable[[Attempt | None], Attempt | None]
"""Takes the attempt that a thread has ended, if any, and gives it another, or None."""

WAITS = ("wait", "wait_for", "join", "_wait_for_tstate_lock")
"""Where `threading` waits; there an exception leaves no lock behind."""
TAKES = frozenset({"acquire", "release", "_acquireLock", "_releaseLock", "lock", "_lock"})
"""What code of `logging` names that takes a lock; in other code there an exception leaves none behind."""

_set_async_exc = ctypes.pythonapi.PyThreadState_SetAsyncExc
_set_async_exc.argtypes = (ctypes.c_ulong, ctypes.py_object)


class Hand(threading.Thread):
    """A thread that runs bodies."""

    def __init__(self, threads: Threads, number: int) -> None:
        super().__init__(name=f"windlass-body-{number}", daemon=True)
        self.wake = threading.Lock()
        self.wake.acquire()
        self._threads = threads
        self._pressed: Attempt | None = None

    def run(self) -> None:
        """Run one body after the other until there is nothing more to do."""
        threads = self._threads
        attempt: Attempt | None = None
        while True:
            attempt = threads.next(attempt)
            while attempt is None:
                if not threads.rest(self):
                    return
                attempt = threads.next(None)
            self._one(attempt)
            if attempt.zombie:
                return

    def _one(self, attempt: Attempt) -> None:
        try:
            attempt.place = self
            # Who stops it looks at the place after the ladder is set: one of the two sees the other.
            attempt.ending = Halted() if attempt.ladder is not None else Variables().run(self._body, attempt)
            self._shut(attempt)
        except BaseException as error:
            # The one Stopped of this attempt, come after the body's end; else a fault of ours, which costs no thread.
            if attempt.ending is None:
                attempt.ending = raised(error)
            self._shut(attempt)

    def _body(self, attempt: Attempt) -> Ending:
        CURRENT.set(attempt.trail)
        return self._threads.body(attempt)

    def _shut(self, attempt: Attempt) -> None:
        attempt.shut(self._threads.clock())
        if self._pressed is attempt:
            take_exception()

    def press(self, attempt: Attempt, rung: Rung) -> None:
        """Raise Stopped in the body, if it has not ended; where it must not be just now, it is `unpressed`."""
        with attempt.door:
            if rung == "exception" and attempt.open and self.ident is not None:
                # Who has just taken the interpreter's lock keeps it for some milliseconds: the look then holds true.
                time.sleep(0)
                last_line = attempt.trail.stops_thread
                if self._pressed is not attempt:
                    self._pressed = attempt
                    last_line.append(self.ident)
                # One that logs all the time is met only while it waits for locks: it ends by its next line.
                if not _is_delicate(sys._current_frames().get(self.ident)) and _taken(last_line):
                    _set_async_exc(self.ident, Stopped)

    def lose_exception(self) -> None:
        """Note that Stopped came where no exception can leave, so that it is raised again."""
        attempt = self._pressed
        if attempt is not None and attempt.open and self.ident is not None and not attempt.unpressed:
            attempt.trail.stops_thread.append(self.ident)


def take_exception() -> None:
    """Catch the exception that was raised in this thread and has perhaps not arrived yet.

    It is raised once more and awaited. One that is taken back instead leaves its signal behind: all threads go on
    looking for it, and in CPython 3.11 code that is traced or profiled then hangs.
    """
    with suppress(Stopped):
        while True:  # until it comes here, and not in a destructor, which swallows it
            _set_async_exc(threading.get_ident(), Stopped)


def _taken(last_line: list[int]) -> bool:
    """Take the stop back from the body's next line; False if the line was faster."""
    try:
        last_line.pop()
    except IndexError:
        return False
    return True


def _is_delicate(top: FrameType | None) -> bool:
    """Say whether code runs that takes and lets go of locks by hand; an exception is raised in the top frame."""
    if top is None:
        return False
    module, code = str(top.f_globals.get("__name__")), top.f_code
    if module == "threading":
        return code.co_name not in WAITS
    return module.split(".")[0] == "logging" and not TAKES.isdisjoint((code.co_name, *code.co_names))


class Threads:
    """All threads for bodies of one worker."""

    def __init__(
        self,
        give: Next,
        *,
        most: int,
        has_work: Callable[[], bool],
        clock: Monotonic,
        isolated: Callable[[Attempt], Ending],
    ) -> None:
        self.next = give
        self._most = most
        self._has_work = has_work
        self.clock = clock
        self._isolated = isolated
        self._lock = threading.Lock()
        self._idle: list[Hand] = []
        self._closed = False
        self._made_count = 0
        self._lost_count = 0
        self._hook_before = sys.unraisablehook
        self._hook = self._unraisable
        sys.unraisablehook = self._hook

    def _unraisable(self, found: sys.UnraisableHookArgs) -> None:
        hand = threading.current_thread()
        if found.exc_type is Stopped and isinstance(hand, Hand):
            hand.lose_exception()
        else:
            self._hook_before(found)

    def body(self, attempt: Attempt) -> Ending:
        """Run the body of an attempt, here or in a process, and return how it ended."""
        if attempt.kind == "process":
            return self._isolated(attempt)
        return run(attempt.task, attempt.job.payload, attempt.context)

    def rouse(self) -> None:
        """Let one more thread look for work: an idle one, else a new one."""
        with self._lock:
            if self._closed:
                return
            if self._idle:
                self._idle.pop().wake.release()
            elif self._made_count - self._lost_count < self._most:
                self._made_count += 1
                Hand(self, self._made_count).start()

    def lose(self) -> None:
        """Count a thread as lost, so that another may take its place."""
        with self._lock:
            self._lost_count += 1

    def rest(self, hand: Hand) -> bool:
        """Wait until there may be work; False: there will be none."""
        with self._lock:
            if self._closed:
                return False
            # Looked at under the lock of rouse: what comes after this look finds the thread among the idle ones.
            if self._has_work():
                return True
            self._idle.append(hand)
        hand.wake.acquire()
        return not self._closed

    def close(self) -> None:
        """Let idle threads end, and the others after their body."""
        with self._lock:
            self._closed = True
            for hand in self._idle:
                hand.wake.release()
            self._idle.clear()
        if sys.unraisablehook is self._hook:
            sys.unraisablehook = self._hook_before
