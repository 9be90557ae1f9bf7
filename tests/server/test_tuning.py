"""What a server sets of its interpreter: requests never wait for a look through all objects."""

from __future__ import annotations

import gc
import sys
from collections.abc import Iterator
from typing import Any

import pytest

from windlass.server import tuning


@pytest.fixture
def collections() -> Iterator[list[int]]:
    """The generations that the collector looks at, one after the other."""
    seen: list[int] = []

    def note(phase: str, info: dict[str, Any]) -> None:
        if phase == "start":
            seen.append(info["generation"])

    gc.callbacks.append(note)
    yield seen
    gc.callbacks.remove(note)


async def test_no_request_waits_for_a_look_at_older_objects(collections: list[int]) -> None:
    """T9: however many objects requests leave, what is begun within them is a look at young ones only."""
    with tuning.loop_kept_free():
        collections.clear()
        kept: list[list[list[None]]] = [[[] for _ in range(tuning.MOST_YOUNG)] for _ in range(2 * tuning.LOOKS)]

    assert {0} == set(collections)
    assert len(kept) <= len(collections)


@pytest.mark.parametrize(
    ("looks", "grown", "generations"),
    [
        ((0, 9, 9), 0, []),
        ((0, 10, 9), 0, [1]),
        ((0, 0, 10), 0, [2]),
        ((0, 99, 99), tuning.SWOLLEN + 1, []),
        ((0, 100, 99), tuning.SWOLLEN + 1, [1]),
        ((0, 0, 100), tuning.SWOLLEN + 1, [2]),
    ],
)
def test_older_objects_have_their_turn(
    looks: tuple[int, int, int],
    grown: int,
    generations: list[int],
    collections: list[int],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Those due are looked at, and later while large requests are under way: their objects would be looked at too."""
    monkeypatch.setattr(gc, "get_count", lambda: looks)
    monkeypatch.setattr(sys, "getallocatedblocks", lambda: 1_000_000)
    collector = tuning.Collector()
    monkeypatch.setattr(sys, "getallocatedblocks", lambda: 1_000_000 + grown)

    collector.look()

    assert generations == collections


async def test_the_interpreter_is_as_before_when_a_server_has_stopped() -> None:
    """Who serves in a process of their own gets back what they had set."""
    before = (sys.getswitchinterval(), gc.get_threshold())

    with tuning.loop_kept_free():
        assert before != (sys.getswitchinterval(), gc.get_threshold())

    assert (before, 0) == ((sys.getswitchinterval(), gc.get_threshold()), gc.get_freeze_count())
