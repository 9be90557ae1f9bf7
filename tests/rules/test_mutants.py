"""The mutants of `make mutants` can be planted, and the tests that are to catch them are there."""

from __future__ import annotations

from functools import cache
from pathlib import Path

from tests.mutants.__main__ import ALL
from tests.mutants.mutant import DoesNotApply, replaced
from tests.rules.source import REPOSITORY, outline_of


def test_mutants_can_be_planted() -> None:
    """A guard that is moved or renamed takes its mutant along, a test its name there."""
    stale = []
    for mutant in ALL:
        texts: dict[Path, str] = {}
        for edit in mutant.edits:
            path = REPOSITORY / "src" / "windlass" / edit.file
            try:
                texts[path] = replaced(edit, texts.get(path) or path.read_text(encoding="utf-8"))
            except DoesNotApply as problem:
                stale.append(f"{mutant.id}: {problem}")
        for test in mutant.tests:
            file, _, name = test.partition("::")
            if name.partition("[")[0] not in names_in(REPOSITORY / file):
                stale.append(f"{mutant.id}: there is no {test}")

    assert [] == stale


@cache
def names_in(path: Path) -> set[str]:
    """Return the names of what a file of tests defines."""
    return {definition.name for definition in outline_of(path).definitions}
