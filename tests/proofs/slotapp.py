"""The application whose jobs schedules of the proofs make."""

from __future__ import annotations

import asyncio
from contextlib import suppress

from windlass import App

WHILE_S = 2.0

app = App()


@app.task(queue="slots")
async def slot() -> None:
    """Do nothing."""


@app.task(queue="slots-run", max_attempts=10)
async def while_slot() -> None:
    """Take a while, so that the next slot may come before the end."""
    with suppress(TimeoutError):
        async with asyncio.timeout(WHILE_S):
            await asyncio.Event().wait()
