"""The model and the databases: the same random commands, the same answers, the same state after each."""

from __future__ import annotations

from functools import partial
from pathlib import Path

import hypothesis
import pytest
from hypothesis.stateful import run_state_machine_as_test

from tests.postgres_run import server_of
from tests.queue.model_leases import MAX_RELEASES
from tests.queue.model_machine import StoreMachine
from tests.queue.model_world import World
from windlass.queue import moves


def test_the_databases_do_what_the_model_does(
    request: pytest.FixtureRequest, sqlite_template: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Whatever is asked in whatever order, SQLite, PostgreSQL (where there is one) and the model agree."""
    monkeypatch.setattr(moves, "MAX_RELEASES", MAX_RELEASES)
    url = request.getfixturevalue("fresh_postgres_url") if server_of(request.config) else None
    settings = hypothesis.settings(
        max_examples=hypothesis.settings().max_examples // 2,
        deadline=None,
        suppress_health_check=list(hypothesis.HealthCheck),
        # Each example takes a second, so what Hypothesis would try in order to explain a failure takes minutes.
        phases=set(hypothesis.Phase) - {hypothesis.Phase.explain},
        report_multiple_bugs=False,
    )

    with World(tmp_path, sqlite_template, url) as world:
        run_state_machine_as_test(partial(StoreMachine, world), settings=settings)  # type: ignore[arg-type]
