"""Work kinds: none is shipped; those of a file, and what is refused."""

from __future__ import annotations

from pathlib import Path

import pytest

from windlass.config import load
from windlass.config.workkinds import WorkKind
from windlass.errors import InvalidInput


def write(directory: Path, text: str) -> None:
    """Write windlass.toml."""
    (directory / "windlass.toml").write_text(text)


def test_without_a_file_there_are_none(tmp_path: Path) -> None:
    """What is shipped names none: a worker of nobody's configuration pretends no work."""
    assert {} == load({}, {}, tmp_path).settings.work_kinds


def test_a_file_describes_kinds(tmp_path: Path) -> None:
    """What the file does not say of a kind is the default of the field."""
    write(tmp_path, "[work_kinds.flaky]\nfail_first = 1\n[work_kinds.nightly]\nduration = '1m30s'\n")

    found = load({}, {}, tmp_path)

    assert {"flaky": WorkKind(fail_first=1), "nightly": WorkKind(duration_s=90.0)} == found.settings.work_kinds
    assert "windlass.toml" == found.sources["work_kinds.flaky.fail_first"]
    assert "default" == found.sources["work_kinds.flaky.duration"]


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("[work_kinds.a]\nduraton = 1", "work_kinds.a.duraton: there is no such setting (in windlass.toml); did you"),
        ("[work_kinds.a]\nduraton = 1", "did you mean duration?"),
        ("[work_kinds.a]\nduration = 'soon'", "work_kinds.a.duration: 'soon' is not accepted (from windlass.toml)"),
        ("[work_kinds.a]\nduration = -1", "work_kinds.a.duration: -1 is not accepted"),
        ("[work_kinds.a]\noutcome = 'maybe'", "Expected: cancel, fail or success"),
        ("[work_kinds.a]\nretryable = 3", "work_kinds.a.retryable: 3 is not accepted"),
        ("[work_kinds.a]\nfail_first = 1.5", "work_kinds.a.fail_first: 1.5 is not accepted"),
        ("[work_kinds]\na = 3", "work_kinds.a: a table with at least one of duration, outcome, retryable"),
        ("[work_kinds.a]", "work_kinds.a: a table with at least one of"),
        ("[work_kinds.'a/b']\nduration = 1", "a name of 1 to 200 characters without / and ,"),
        ("[work_kinds.'']\nduration = 1", "a name of 1 to 200 characters without / and ,"),
        ("work_kinds = 3", "work_kinds: there is no such setting"),
    ],
)
def test_a_wrong_kind_is_refused_by_name(tmp_path: Path, text: str, message: str) -> None:
    """The message has the key, the value, where it came from and what is expected."""
    write(tmp_path, text)

    with pytest.raises(InvalidInput) as caught:
        load({}, {}, tmp_path)

    assert message in str(caught.value)
