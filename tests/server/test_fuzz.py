"""The document against the server: every operation with what the document allows and with what it does not.

schemathesis makes the requests and checks each answer: no fault, status and type and body as documented, bad data
refused, good data taken, keys asked for, methods that are not there refused.
"""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import schemathesis
from hypothesis import HealthCheck, settings

from tests.server.served import serving
from windlass.queue.keys import make_token
from windlass.server import auth
from windlass.server.openapi import document
from windlass.server.routes import ROUTES

TOKEN = make_token()


@pytest.fixture(scope="module")
def served(sqlite_template: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """The address of a server with keys required."""
    path = tmp_path_factory.mktemp("fuzz") / "windlass.db"
    shutil.copyfile(sqlite_template, path)
    with pytest.MonkeyPatch.context() as patch, serving(f"sqlite:///{path}?synchronous=off", TOKEN) as url:
        # Who sends so many bad keys is told 429 after ten of them, where the check asks for 401.
        patch.setattr(auth, "FAILURES", 1_000_000)
        yield url


schema = schemathesis.openapi.from_dict(document(ROUTES))


@schema.parametrize()
@settings(max_examples=8, deadline=None, suppress_health_check=list(HealthCheck))
def test_the_server_does_as_it_says(case: Any, served: str) -> None:
    """Every check of schemathesis holds for every operation."""
    for fields in (case.body, case.query):
        # A wait that is allowed is only cut short: the answer is the same.
        if isinstance(fields, dict) and isinstance(fields.get("wait"), int | float) and 0 <= fields["wait"] <= 20:
            fields["wait"] = 0

    case.call_and_validate(base_url=served, headers={"Authorization": f"Bearer {TOKEN}"}, timeout=30)
