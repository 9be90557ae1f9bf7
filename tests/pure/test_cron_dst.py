"""Slots at changes of the clock in hard zones, compared with the oracle; every zone: `python -m tests.proofs dst`."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.proofs import dst
from windlass.queue.cron import walk as cronwalk

HARD = {
    "Europe/Berlin": (2026, 2026),
    "America/New_York": (2007, 2007),
    "Australia/Lord_Howe": (2026, 2026),
    "Pacific/Chatham": (2026, 2026),
    "Antarctica/Troll": (2026, 2026),
    "America/Santiago": (2019, 2019),
    "Pacific/Apia": (2011, 2011),
    "Africa/Casablanca": (2026, 2026),
    "Asia/Beirut": (2023, 2023),
    "Asia/Tehran": (2022, 2022),
    "Asia/Kathmandu": (2000, 2037),
    "Europe/Dublin": (2037, 2037),
}


MANY = [name if n % 3 == 0 else pytest.param(name, marks=pytest.mark.exhaustive) for n, name in enumerate(HARD)]


@pytest.mark.parametrize("name", MANY)
def test_rel_k13_slots_of_hard_zones_are_those_of_the_written_rule(name: str) -> None:
    """An oracle that walks real time minute by minute and knows only the rule finds the same slots."""
    turns = dst.changes(name, range(HARD[name][0], HARD[name][1] + 1))
    (zone,) = dst.fold([name], [turns])

    compared = dst.compare(zone)

    assert [] == compared.mismatches
    assert (name == "Asia/Kathmandu") == (compared.turn_count == 0)


@pytest.fixture
def forgotten() -> Iterator[None]:
    """Forget slots before and after a test that has wrong ones computed."""
    cronwalk.cached_after.cache_clear()
    yield
    cronwalk.cached_after.cache_clear()


@pytest.mark.usefixtures("forgotten")
def test_the_oracle_sees_a_wrong_slot(monkeypatch: pytest.MonkeyPatch) -> None:
    """Where our rule is another one, the comparison says so: each change of Berlin, for the fixed times it touches."""
    monkeypatch.setattr(cronwalk, "_first_instant", lambda wall, zone: wall.replace(tzinfo=zone, fold=1))
    (zone,) = dst.fold(["Europe/Berlin"], [dst.changes("Europe/Berlin", range(2031, 2032))])

    compared = dst.compare(zone)

    assert any("'30 2 * * *': 2031-03-30" in mismatch for mismatch in compared.mismatches)
    assert any("'30 2 * * *': 2031-10-26" in mismatch for mismatch in compared.mismatches)
