"""What a body may leave behind in its isolated process: signal handlers, timers, threads and children.

Handlers and timers are put back. Threads and children that came with a body cannot be ended safely, and what they print
would stand in the log of the next job: then the process takes no other body (cell.py).
"""

from __future__ import annotations

import os
import signal
import threading
from typing import Any

HELD_BACK = (signal.SIGTERM, signal.SIGINT, signal.SIGHUP)
"""Signals that an isolated process is started with blocked, until it can hear them."""
_KEPT = {signal.SIGKILL, signal.SIGSTOP}
_TIMERS = (signal.ITIMER_REAL, signal.ITIMER_VIRTUAL, signal.ITIMER_PROF)


class Traces:
    """How the process was before any body, and what is different after one. Used by the main thread."""

    def __init__(self) -> None:
        self._handlers: dict[signal.Signals, Any] = {}
        self._threads: set[threading.Thread] = set()
        self._has_children = False

    def note(self) -> None:
        """Remember how it is now: what a module does when it is imported is no trace of a body."""
        self._handlers = {number: signal.getsignal(number) for number in _settable()}
        self._threads = set(threading.enumerate())
        self._has_children = _has_children()

    def restore(self) -> bool:
        """Put handlers and timers back; True if threads or children are left."""
        for timer in _TIMERS:
            signal.setitimer(timer, 0)
        for number, handler in self._handlers.items():
            if handler is not None and signal.getsignal(number) is not handler:
                signal.signal(number, handler)
        signal.pthread_sigmask(signal.SIG_SETMASK, ())
        has_threads = any(thread.is_alive() and thread not in self._threads for thread in threading.enumerate())
        return has_threads or (_has_children() and not self._has_children)


def _settable() -> list[signal.Signals]:
    return [number for number in signal.Signals if number not in _KEPT]


def _has_children() -> bool:
    try:
        os.waitid(os.P_ALL, 0, os.WEXITED | os.WNOHANG | os.WNOWAIT)
    except ChildProcessError:
        return False
    except AttributeError:  # no waitid here: nobody can tell
        return False
    return True
