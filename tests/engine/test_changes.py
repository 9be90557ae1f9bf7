"""Looks for streams: how often one tenant may read much."""

from __future__ import annotations

from datetime import UTC, datetime
from types import SimpleNamespace
from typing import Any, cast

import pytest

from windlass.engine.changes import LONG_S, REST, Changes, Looks
from windlass.engine.outside import Outside

EARLIEST = datetime(2026, 1, 1, tzinfo=UTC)


@pytest.mark.parametrize(("spent_s", "rests"), [(LONG_S / 2, []), (1.0, [REST * 1.0])])
async def test_rel_t15_a_tenant_rests_after_a_long_look(spent_s: float, rests: list[float]) -> None:
    """T15: what a look found is told at once; after a long one the next look rests first, in the tenant's turn."""
    now_s = 0.0
    pauses: list[float] = []

    async def pause(seconds: float) -> None:
        nonlocal now_s
        pauses.append(seconds)
        now_s += seconds

    class Slow(Looks):
        async def fresh(self, *_: object) -> list[Any]:
            nonlocal now_s
            now_s += spent_s
            return []

    outside = Outside(monotonic=lambda: now_s, pause=pause)
    changes = Changes(cast(Any, None), cast(Any, SimpleNamespace(on_change=[])), outside=outside)
    for tenant in ("b", "a"):
        async with changes.turn(tenant):
            assert [] == await changes._fresh(tenant, Slow(EARLIEST))

    assert [] == pauses
    async with changes.turn("a"):
        assert rests == pauses
    async with changes.turn("a"):
        assert rests == pauses
