"""A plugin of pytest, for the run of one mutant: write down how each test ended, and that the mutant was tested."""

from __future__ import annotations

import json
import os
import re
from collections.abc import Generator
from pathlib import Path

import pytest

import windlass

# SQLite has one error for a statement that is wrong and for one that cannot be run now.
SLIP_OF_SQLITE = re.compile(r"^(near .*: syntax error|no such (column|table)|incomplete input|ambiguous column)")
SOURCE, VERDICTS = "WINDLASS_MUTANT_SOURCE", "WINDLASS_MUTANT_VERDICTS"
_ends: dict[str, str] = {}


def pytest_configure(config: pytest.Config) -> None:
    """Refuse to run if another Windlass than the mutant would be tested."""
    if not Path(windlass.__file__).is_relative_to(os.environ[SOURCE]):
        raise pytest.UsageError(f"{windlass.__file__} would be tested, not the mutant in {os.environ[SOURCE]}")


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(
    item: pytest.Item, call: pytest.CallInfo[None]
) -> Generator[None, pytest.TestReport, pytest.TestReport]:
    """Keep what a test raised, or that it passed or was skipped."""
    report = yield
    if call.when == "call" and call.excinfo is None:
        _ends.setdefault(item.nodeid, "passed")
    elif call.excinfo is not None:
        kind = f"{call.excinfo.type.__module__}.{call.excinfo.type.__qualname__}"
        if SLIP_OF_SQLITE.search(str(call.excinfo.value)):
            kind = "sqlite3.ProgrammingError"
        if call.when == "call":
            _ends[item.nodeid] = kind
        elif _ends.get(item.nodeid, "passed") == "passed":
            _ends[item.nodeid] = f"{call.when}: {kind}"
    return report


def pytest_sessionfinish() -> None:
    """Write down all ends."""
    Path(os.environ[VERDICTS]).write_text(json.dumps(_ends), encoding="utf-8")
