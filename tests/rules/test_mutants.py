"""The mutants of `make mutants` can be planted, and the tests that are to catch them are there."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

from tests.mutants.__main__ import ALL
from tests.mutants.mutant import DoesNotApply, replaced
from tests.rules.source import REPOSITORY


def test_mutants_can_be_planted() -> None:
    """A guard that is moved or renamed takes its mutant along."""
    stale = []
    for mutant in ALL:
        texts: dict[Path, str] = {}
        for edit in mutant.edits:
            path = REPOSITORY / "src" / "windlass" / edit.file
            try:
                texts[path] = replaced(edit, texts.get(path) or path.read_text(encoding="utf-8"))
            except DoesNotApply as problem:
                stale.append(f"{mutant.id}: {problem}")

    assert [] == stale


def test_mutants_name_tests_that_are_there() -> None:
    """A test that is renamed, or whose parameters change, takes its name in the mutants along."""
    tests = sorted({test for mutant in ALL for test in mutant.tests})
    pytest = [sys.executable, "-m", "pytest", "--collect-only", "-q", "-n", "0", "-p", "no:cacheprovider"]

    found = subprocess.run([*pytest, *tests], cwd=REPOSITORY, capture_output=True, text=True, check=False)

    assert 0 == found.returncode, found.stderr
