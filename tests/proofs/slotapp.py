"""The application whose jobs schedules of the proofs make."""

from __future__ import annotations

from windlass import App

app = App()


@app.task(queue="slots")
async def slot() -> None:
    """Do nothing."""
