"""A transaction held open while others go on: whatever they do meanwhile, what was answered is what is recorded."""

from __future__ import annotations

from functools import partial

import hypothesis
from hypothesis.stateful import run_state_machine_as_test

from tests.queue.model_open import OpenMachine, OpenWorld


def test_open_transactions_lose_nothing(fresh_postgres_url: str) -> None:
    """Whatever is held before its COMMIT, and whatever runs beside it: one place, one end, true answers."""
    profile = hypothesis.settings()
    settings = hypothesis.settings(
        # A step is a whole race, of four or five commands.
        max_examples=profile.max_examples * 3 // 5,
        stateful_step_count=profile.stateful_step_count // 2,
        deadline=None,
        suppress_health_check=list(hypothesis.HealthCheck),
        phases=set(hypothesis.Phase) - {hypothesis.Phase.explain},
        report_multiple_bugs=False,
    )

    with OpenWorld(fresh_postgres_url) as world:
        run_state_machine_as_test(partial(OpenMachine, world), settings=settings)  # type: ignore[arg-type]
