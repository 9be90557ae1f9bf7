"""Keeping by another process: the runner's end of the socket to its keeper (keeper.py).

Words are written at once, by whichever thread has them, so that a start is with the keeper before its body runs.
When the keeper is gone so is the session: the runner ends then, whatever it was doing.
"""

from __future__ import annotations

import asyncio
import socket
import threading
from collections.abc import Mapping, Sequence
from contextlib import suppress

import msgspec

from windlass.errors import WindlassError
from windlass.wire import work as wire
from windlass.worker.frames import (
    Drop,
    Failed,
    FromKeeper,
    FromRunner,
    Hold,
    Lease,
    Leaving,
    Opened,
    Ready,
    Start,
    Tick,
    from_keeper,
    line,
)

READ_BYTES = 1 << 16


class KeeperGone(WindlassError):
    """The keeper's end of the socket is closed: this process has no session any more."""

    def __init__(self) -> None:
        super().__init__("The keeper of this worker process has gone. The process ends; its jobs come back.")


class PipeKeeping:
    """The words with a keeper at the other end of `end`."""

    def __init__(self, end: socket.socket) -> None:
        self._end = end
        self.queues: tuple[str, ...] = ("default",)
        """Those of the worker, for the session."""
        # Threads write, so it blocks; the loop reads only what is there.
        self._end.setblocking(True)
        self._writing = threading.Lock()
        self._words: asyncio.Queue[FromKeeper | None] = asyncio.Queue()
        self._rest = b""
        self._opened: Opened | None = None
        self._reading = False

    def read_line(self) -> bytes:
        """Wait for the first line, which is no frame; KeeperGone if none comes."""
        while b"\n" not in self._rest:
            data = self._end.recv(READ_BYTES)
            if not data:
                raise KeeperGone
            self._rest += data
        text, self._rest = self._rest.split(b"\n", 1)
        return text

    def read_opened(self) -> None:
        """Wait for the session, the keeper's first word: nothing of the user's is imported before (W3)."""
        word = from_keeper(self.read_line())
        assert isinstance(word, Opened), word
        self._opened = word

    async def open(self, tasks: Sequence[str], signatures: Mapping[str, msgspec.Raw]) -> Opened:
        """Say that the modules are there, and return the session."""
        self._say(Ready(list(tasks), dict(signatures), self.queues))
        assert self._opened is not None
        return self._opened

    async def hear(self) -> FromKeeper:
        """Return the next word, when it comes; KeeperGone when there is nobody to say one."""
        if not self._reading:
            self._reading = True
            self._take(b"")  # words that came with the first ones
            asyncio.get_running_loop().add_reader(self._end.fileno(), self._read)
        word = await self._words.get()
        if word is None:
            raise KeeperGone
        return word

    def hold(self, jobs: Sequence[wire.ClaimedJob]) -> None:
        """Name leases, and how long each may run."""
        self._say(Hold([(job.id, job.fence) for job in jobs], [job.max_execution_time for job in jobs]))

    def start(self, jobs: Sequence[Lease]) -> None:
        """Say that these bodies begin."""
        self._say(Start(list(jobs)))

    def drop(self, jobs: Sequence[Lease]) -> None:
        """Say that these leases are over."""
        self._say(Drop(list(jobs)))

    def tick(self, tick: Tick) -> None:
        """Say that the worker advances."""
        self._say(tick)

    async def leave(self, leaving: Leaving) -> None:
        """Say that everything is reported or given back."""
        self._say(leaving)

    def failed(self, reason: str) -> None:
        """Say that this process cannot begin."""
        self._say(Failed(reason))

    def _say(self, frame: FromRunner) -> None:
        text = line(frame)
        with suppress(OSError), self._writing:  # who reads from it sees the end too, and ends this process
            self._end.sendall(text)

    def _read(self) -> None:
        try:
            data = self._end.recv(READ_BYTES, socket.MSG_DONTWAIT)
        except (BlockingIOError, InterruptedError):
            return
        except OSError:
            data = b""
        if not data:
            asyncio.get_running_loop().remove_reader(self._end.fileno())
            self._words.put_nowait(None)
            return
        self._take(data)

    def _take(self, data: bytes) -> None:
        *lines, self._rest = (self._rest + data).split(b"\n")
        for text in lines:
            self._words.put_nowait(from_keeper(text))
