"""The application of `windlass bench whole`: tasks that do nothing, as coroutine and as function, and one that sleeps.

Where a folder for bodies is named, importing this module says that a runner is loaded and waits for the word, so that
all runners of a measured fleet begin together, as peers do (peers/stage.py).
"""

from __future__ import annotations

import asyncio
import os
import time
from pathlib import Path

from windlass.bench.peers.stage import FOLDER_VARIABLE, LOOK_S, RESULT, WORD, Tally
from windlass.client.app import App


def application(folder: str) -> App:
    """Return the application, whose bodies count themselves in `folder`."""
    tally = Tally(folder)
    made = App()

    @made.task
    async def noop(order: int, to: str, note: str) -> dict[str, bool]:
        """Do nothing, as a coroutine."""
        tally.mark()
        return RESULT

    @made.task
    def plain(order: int, to: str, note: str) -> dict[str, bool]:
        """Do nothing, in a thread."""
        tally.mark()
        return RESULT

    @made.task
    async def nap(seconds: float) -> None:
        """Sleep."""
        tally.mark()
        await asyncio.sleep(seconds)

    return made


def _wait_for_word(folder: str) -> None:
    (Path(folder) / f"loaded-{os.getpid()}").touch()
    word = Path(folder) / WORD
    while not word.exists():
        time.sleep(LOOK_S)


_folder = os.environ.get(FOLDER_VARIABLE, "")
app = application(_folder)
if _folder:
    _wait_for_word(_folder)
