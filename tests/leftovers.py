"""What a block leaves behind in this process: threads, tasks of the loop, open files."""

from __future__ import annotations

import asyncio
import threading
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from pathlib import Path

PATIENCE_S = 60.0


def _there() -> set[object]:
    files = set[tuple[str, Path]]()
    for path in Path("/proc/self/fd").iterdir():
        with suppress(FileNotFoundError):  # the one of this look, and what is closed meanwhile
            files.add((path.name, path.readlink()))
    # uvloop opens /dev/null with the first connection of a loop, as a reserve for when there are no more files.
    own = {file for file in files if file[1] != Path("/dev/null")}
    return {*threading.enumerate(), *asyncio.all_tasks(), *own}


@asynccontextmanager
async def nothing_left() -> AsyncIterator[None]:
    """Fail if something that came with the block does not go; what was there before may."""
    before = _there()
    yield
    give_up_at = time.monotonic() + PATIENCE_S
    while (left := _there() - before) and time.monotonic() < give_up_at:  # noqa: ASYNC110 — a thread sets no event
        await asyncio.sleep(0)
    assert set() == left
