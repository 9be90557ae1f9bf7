"""The stage of the races, for faults that are played with their scenes."""

from __future__ import annotations

from tests.queue.races.conftest import postgres_stage, sqlite_stage, stage

__all__ = ["postgres_stage", "sqlite_stage", "stage"]
