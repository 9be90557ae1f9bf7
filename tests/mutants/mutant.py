"""What a mutant is, and how it is made in a copy of the source."""

from __future__ import annotations

import re
import shutil
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

REPOSITORY = Path(__file__).parent.parent.parent
RACES = "tests/queue/races"
FAULTS = "tests/queue/faults"

_NAME = re.compile(r"^-- name: ([\w ]+)$", re.MULTILINE)
_DIALECT = re.compile(r"^-- (postgres|sqlite|both)\b[^\n]*$", re.MULTILINE)

Dialect = Literal["postgres", "sqlite", "both"]


class DoesNotApply(Exception):
    """The text to replace is not there, or not as often as it should be."""


@dataclass(frozen=True)
class Edit:
    """A text replaced in a file of the product; in a `.sql` file within one query, and one dialect of it if named."""

    file: str
    old: str
    new: str
    query: str | None = None
    dialect: Dialect | None = None
    count: int = 1


@dataclass(frozen=True)
class Mutant:
    """One guard removed, the tests that must notice, and the rule that is broken."""

    id: str
    edits: tuple[Edit, ...]
    tests: tuple[str, ...]
    rule: str
    only: Literal["postgres", "sqlite"] | None = None
    """Run the tests on one database only: the guard stands there only."""


def sql(step: str, query: str, old: str, new: str, dialect: Dialect | None = None, *, count: int = 1) -> Edit:
    """Return an edit of a query in `queue/`; one that has the same text for both is edited there."""
    return Edit(f"queue/{step}.sql", old, new, query, dialect, count)


def both(step: str, query: str, old: str, new: str, *, sqlite: str | None = None) -> tuple[Edit, ...]:
    """Return the same edit in both dialects of a query; `sqlite` is how the old text reads there, if otherwise."""
    edit = sql(step, query, old, new, "both")
    if _has_both((REPOSITORY / "src" / "windlass" / edit.file).read_text(encoding="utf-8"), edit):
        return (edit,)
    return (
        sql(step, query, old, new, "postgres"),
        sql(step, query, old if sqlite is None else sqlite, new, "sqlite"),
    )


def races(*tests: str) -> tuple[str, ...]:
    """Return tests of the races, by `file::test`, as pytest names them; `[*…]` is that test on both databases."""
    return _tests(RACES, tests)


def faults(*tests: str) -> tuple[str, ...]:
    """Return tests of the faults, named as those of the races are."""
    return _tests(FAULTS, tests)


def _tests(folder: str, tests: tuple[str, ...]) -> tuple[str, ...]:
    named = (f"{folder}/test_{test.replace('::', '.py::test_', 1)}" for test in tests)
    kinds = ("sqlite", "postgres")
    return tuple(test.replace("[*", f"[{kind}") for test in named for kind in (kinds if "[*" in test else kinds[:1]))


def plant(mutant: Mutant, source: Path) -> None:
    """Make the mutant in the copy of `src/` at `source`; DoesNotApply if its text has changed."""
    for edit in mutant.edits:
        path = source / "windlass" / edit.file
        path.write_text(replaced(edit, path.read_text(encoding="utf-8")), encoding="utf-8")


def copied(target: Path) -> Path:
    """Copy `src/` below `target` and return where it is."""
    source = target / "src"
    # With the compiled files: they stay valid where the text is the same.
    shutil.copytree(REPOSITORY / "src", source)
    return source


def replaced(edit: Edit, text: str) -> str:
    """Return `text` with the edit made."""
    start, end = region(edit, text)
    found = text.count(edit.old, start, end)
    if found != edit.count:
        where = " ".join(filter(None, (edit.file, edit.query, edit.dialect)))
        raise DoesNotApply(f"{where}: found {found} times, not {edit.count}: {edit.old!r}")
    return text[:start] + text[start:end].replace(edit.old, edit.new) + text[end:]


def region(edit: Edit, text: str) -> tuple[int, int]:
    """Return where in the file the edit may be made."""
    if edit.query is None:
        return 0, len(text)
    start, end = _between(_NAME, edit.query, text, 0, len(text), edit)
    if edit.dialect is None:
        return start, end
    return _between(_DIALECT, "both" if _has_both(text, edit) else edit.dialect, text, start, end, edit)


def _has_both(text: str, edit: Edit) -> bool:
    assert edit.query is not None
    start, end = _between(_NAME, edit.query, text, 0, len(text), edit)
    return any(mark[1] == "both" for mark in _DIALECT.finditer(text, start, end))


def _between(heads: re.Pattern[str], name: str, text: str, start: int, end: int, edit: Edit) -> tuple[int, int]:
    marks = [(mark[1], mark.end(), mark.start()) for mark in heads.finditer(text, start, end)]
    for (found, begin, _), following in zip(marks, [*marks[1:], None], strict=True):
        if name in found.split():
            return begin, following[2] if following else end
    raise DoesNotApply(f"{edit.file}: there is no {name}")
