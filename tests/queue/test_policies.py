"""The document of the policies says what they do."""

from __future__ import annotations

import pytest

from tests.queue.policies import DOCUMENT, play
from tests.queue.steps import Steps


@pytest.mark.one_kind
async def test_rel_e8_e9_every_policy_does_what_its_document_says(steps: Steps) -> None:
    """Every catch_up beside every overlap, played; `python -m tests.queue.policies` writes the document anew."""
    assert DOCUMENT.read_text(encoding="utf-8") == await play(steps)
