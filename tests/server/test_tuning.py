"""What a server sets of its interpreter: a request waits for looks at young objects only."""

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


async def test_no_request_waits_for_a_second_look(collections: list[int]) -> None:
    """T9: however many objects requests leave, what is begun within them is a look at young ones only."""
    with tuning.loop_kept_free():
        collections.clear()
        kept: list[list[list[None]]] = [[[] for _ in range(tuning.MOST_YOUNG)] for _ in range(2 * tuning.LOOKS)]

    assert {0} == set(collections)
    assert len(kept) <= len(collections)


@pytest.mark.parametrize(("looks", "generations"), [((0, 9, 9), []), ((0, 10, 9), [1])])
def test_the_second_look_has_a_turn_of_its_own(
    looks: tuple[int, int, int], generations: list[int], collections: list[int], monkeypatch: pytest.MonkeyPatch
) -> None:
    """After ten looks at young objects those that live on are looked at again."""
    monkeypatch.setattr(gc, "get_count", lambda: looks)
    gc.disable()

    tuning.look_again()

    assert generations == collections


async def test_the_interpreter_is_as_before_when_a_server_has_stopped() -> None:
    """Who serves in a process of their own gets back what they had set."""
    before = (sys.getswitchinterval(), gc.get_threshold())

    with tuning.loop_kept_free():
        assert before != (sys.getswitchinterval(), gc.get_threshold())

    assert before == (sys.getswitchinterval(), gc.get_threshold())
