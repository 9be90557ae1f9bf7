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
    gc.enable()


async def test_no_request_waits_for_a_look_at_older_objects(collections: list[int]) -> None:
    """T9: however many objects requests leave, what is begun within them is a look at young ones only."""
    with tuning.loop_kept_free():
        collections.clear()
        kept: list[list[list[None]]] = [[[] for _ in range(tuning.MOST_YOUNG)] for _ in range(2 * tuning.LOOKS)]

    assert {0} == set(collections)
    assert len(kept) <= len(collections)


@pytest.mark.parametrize(("looks", "generations"), [((0, 9, 9), []), ((0, 10, 9), [1]), ((0, 0, 10), [2])])
def test_older_objects_have_their_turn(
    looks: tuple[int, int, int], generations: list[int], collections: list[int], monkeypatch: pytest.MonkeyPatch
) -> None:
    """After ten looks at younger objects older ones are looked at, and after ten of these all."""
    monkeypatch.setattr(gc, "get_count", lambda: looks)
    gc.disable()

    tuning.Collector().look()

    assert generations == collections


def test_a_look_is_put_off_while_large_requests_are_under_way(
    collections: list[int], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Their objects would be looked at too. What has grown for good is no large request."""
    blocks = 1_000_000
    monkeypatch.setattr(gc, "get_count", lambda: (0, 0, tuning.LOOKS))
    monkeypatch.setattr(sys, "getallocatedblocks", lambda: blocks)
    collector = tuning.Collector()
    gc.disable()

    def looks(count: int) -> int:
        collections.clear()
        for _ in range(count):
            collector.look()
        return len(collections)

    assert 1 == looks(1)
    blocks += tuning.SWOLLEN + 1
    assert [0, 1] == [looks(tuning.LATELY - 1), looks(1)]
    blocks -= tuning.SWOLLEN
    assert 1 == looks(1)
    blocks += tuning.SWOLLEN + 1
    assert 0 == looks(1)


async def test_the_interpreter_is_as_before_when_a_server_has_stopped() -> None:
    """Who serves in a process of their own gets back what they had set."""
    before = (sys.getswitchinterval(), gc.get_threshold())

    with tuning.loop_kept_free():
        assert before != (sys.getswitchinterval(), gc.get_threshold())

    assert before == (sys.getswitchinterval(), gc.get_threshold())
