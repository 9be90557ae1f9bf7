"""Looks for streams: how often one tenant may read much."""

from __future__ import annotations

import asyncio
from datetime import UTC, datetime
from types import SimpleNamespace
from typing import Any, cast

import pytest

from windlass.engine.changes import LONG_S, REST, Changes, Looks
from windlass.engine.outside import Outside

EARLIEST = datetime(2026, 1, 1, tzinfo=UTC)


@pytest.mark.parametrize(("spent_s", "rests"), [(LONG_S / 2, []), (1.0, [REST * 1.0])])
async def test_rel_t15_a_tenant_rests_after_a_long_look(spent_s: float, rests: list[float]) -> None:
    """T15: a look that reads thousands of rows is followed by a rest in the tenant's turn, a short one by none."""
    now_s = 0.0
    pauses: list[float] = []

    async def pause(seconds: float) -> None:
        pauses.append(seconds)
        await asyncio.sleep(0)

    class Slow(Looks):
        async def fresh(self, *_: object) -> list[Any]:
            nonlocal now_s
            now_s += spent_s
            return []

    outside = Outside(monotonic=lambda: now_s, pause=pause)
    changes = Changes(cast(Any, None), cast(Any, SimpleNamespace(on_change=[])), outside=outside)

    assert [] == await changes._fresh("a", Slow(EARLIEST))
    assert rests == pauses
