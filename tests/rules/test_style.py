"""The rules of house style that a program can see; `exceptions.py` lists where they do not hold."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterable
from pathlib import Path

import pytest

from tests.rules import exceptions
from tests.rules.source import REPOSITORY, dotted, files, outline_of, texts, tree_of, words
from windlass.config.keys import KEYS

LINES_OF_SOURCE, LINES_OF_OTHERS, LINES_OF_FUNCTION = 400, 600, 50
EMPTY_WORDS = {"util", "utils", "manager", "managers", "common", "service", "services", "processor", "processors"}

PURE_NAMES = ("job", "errors", "wire", "clock", "ids", "durations", "shards", "config/**/*")
PURE_MODULES = [f"src/windlass/{name}.py" for name in PURE_NAMES]
CORE = [*PURE_MODULES, "src/windlass/queue/**/*.py"]
IMPURE_MODULES = {"random", "secrets", "socket", "time"}
IMPURE_CALLS = re.compile(
    r"(^|\.)(datetime\.(now|utcnow|today)|date\.today|uuid[14]|urandom|asyncio\.sleep|open_connection|start_server)$"
)

NO_SQL = [f"src/windlass/{layer}/**/*.py" for layer in ("queue", "engine", "server", "client", "worker")]
STATEMENT = re.compile(
    r"\b(SELECT\s|INSERT\s+INTO\b|UPDATE\s+\S+\s+SET\b|DELETE\s+FROM\b|WITH\s+\w+\s+AS\b|TRUNCATE\s"
    r"|(CREATE|ALTER|DROP)\s+(TABLE|INDEX|VIEW|SCHEMA)\b)"
)
UNFINISHED = re.compile(r"\b(TODO|FIXME|XXX|HACK)\b")
MACHINE_PATH = re.compile(r"(?<![\w./:}])/(home|Users|root|work|tmp|mnt|private)/\w")
TEXT_FILES = ["src/**/*.py", "src/**/*.sql", "tests/**/*.py", "tests/**/*.sql", "Makefile", "*.toml", ".ci/*"]


def found(root: Path, patterns: Iterable[str], pattern: re.Pattern[str]) -> list[str]:
    """Return `path:line: text` for every line that matches; the rules themselves name what they forbid."""
    return [
        f"{path.relative_to(root)}:{number}: {line.strip()}"
        for path in files(root, *patterns)
        if not path.is_relative_to(root / "tests" / "rules")
        for number, line in enumerate(path.read_text(encoding="utf-8").splitlines(), 1)
        if pattern.search(line)
    ]


def long_files(root: Path) -> set[str]:
    """Return the files with more lines than their like."""
    limits = {"src/**/*.py": LINES_OF_SOURCE, "tests/**/*.py": LINES_OF_OTHERS, "**/*.sql": LINES_OF_OTHERS}
    return {
        str(path.relative_to(root))
        for pattern, limit in limits.items()
        for path in files(root, pattern)
        if ".venv" not in path.parts and len(path.read_text(encoding="utf-8").splitlines()) > limit
    }


def long_functions(root: Path) -> set[str]:
    """Return `path::name` of every function that does not fit on a screen."""
    return {
        f"{path.relative_to(root)}::{definition.name}"
        for path in files(root, "src/**/*.py", "tests/**/*.py")
        for definition in outline_of(path).definitions
        if definition.is_function and definition.lines > LINES_OF_FUNCTION
    }


def empty_names(root: Path) -> list[str]:
    """Return the files, folders, classes and functions whose name says nothing."""
    names = []
    for path in files(root, "src/**/*.py", "src/**/*.sql", "tests/**/*.py"):
        inside = path.relative_to(root)
        names += [str(inside) for part in inside.parts if EMPTY_WORDS & set(words(part))]
        if path.suffix == ".py":
            defined = [definition.name for definition in outline_of(path).definitions]
            names += [f"{inside}::{name}" for name in defined if EMPTY_WORDS & set(words(name.rpartition(".")[2]))]
    return names


def impure(root: Path) -> set[str]:
    """Return the files of the core that take time, chance, sleep or a socket from outside."""
    found_in = set()
    for path in files(root, *CORE):
        imported = {name for _, name in outline_of(path).imported("windlass")}
        used = imported.union(dotted(node) for node in ast.walk(tree_of(path)))
        modules = {name.split(".")[0] for name in imported}
        if modules & IMPURE_MODULES or any(IMPURE_CALLS.search(name) for name in used):
            found_in.add(str(path.relative_to(root)))
    return found_in


def sleeps(root: Path) -> set[str]:
    """Return the files of tests that wait for real time; `asyncio.sleep(0)` only lets others run."""
    found_in = set()
    for path in files(root, "tests/**/*.py"):
        for node in ast.walk(tree_of(path)) if "sleep" in path.read_text(encoding="utf-8") else ():
            if isinstance(node, ast.Call) and re.search(r"(^|\.)sleep$", dotted(node.func)):
                gives_way = len(node.args) == 1 and isinstance(node.args[0], ast.Constant) and node.args[0].value == 0
                if not gives_way:
                    found_in.add(str(path.relative_to(root)))
    return found_in


def sql_in_python(root: Path) -> set[str]:
    """Return the files above `db/` with a statement in a string."""
    return {
        str(path.relative_to(root))
        for path in files(root, *NO_SQL)
        if any(STATEMENT.search(text) for _, text in texts(tree_of(path)))
    }


def undocumented(root: Path) -> list[str]:
    """Return the modules of the product and the tests that do not say what they are for."""
    silent = [
        str(path.relative_to(root))
        for path in files(root, "src/**/*.py", "tests/**/*.py")
        if path.read_text(encoding="utf-8").strip() and not outline_of(path).documented
    ]
    for path in files(root, "tests/**/test_*.py"):
        for definition in outline_of(path).definitions:
            is_test = definition.is_function and definition.name.rpartition(".")[2].startswith("test_")
            if is_test and not definition.documented:
                silent.append(f"{path.relative_to(root)}::{definition.name}")
    return silent


def test_long_files_have_a_reason() -> None:
    """A file of more than 400 lines (600 for tests and SQL) is split, or listed with a reason."""
    assert set(exceptions.LONG_FILES) == long_files(REPOSITORY)


def test_long_functions_have_a_reason() -> None:
    """A function of more than 50 lines is split, or listed with a reason."""
    assert set(exceptions.LONG_FUNCTIONS) == long_functions(REPOSITORY)


def test_names_say_something() -> None:
    """Nothing is called util, manager, common, service or processor."""
    assert [] == empty_names(REPOSITORY)


def test_nothing_is_left_unfinished() -> None:
    """Work that remains stands in an issue, not in a comment."""
    assert [] == found(REPOSITORY, TEXT_FILES, UNFINISHED)


def test_no_path_of_one_machine() -> None:
    """No file names a folder that exists on its author's machine only."""
    assert [] == found(REPOSITORY, [*TEXT_FILES, "*.md", "docs/**/*.md"], MACHINE_PATH)


def test_the_core_is_given_time_and_chance() -> None:
    """Clock, random, sleep and socket are parameters of the core, so that it can be simulated."""
    listed = {path for path in exceptions.IMPURE if (REPOSITORY / path).exists()}

    assert listed == impure(REPOSITORY)


def test_no_test_sleeps() -> None:
    """A test moves its clock or awaits an event; it never waits for time to pass."""
    assert set(exceptions.SLEEPS) == sleeps(REPOSITORY)


def test_sql_stands_in_sql_files() -> None:
    """Statements stand in `.sql` files, both dialects side by side; Python above `db/` has none."""
    assert set(exceptions.SQL_IN_PYTHON) == sql_in_python(REPOSITORY)


def test_modules_and_tests_say_what_they_are_for() -> None:
    """Every module has a docstring, and every test one that states its rule."""
    assert [] == undocumented(REPOSITORY)


def test_every_setting_is_read_somewhere() -> None:
    """A setting that nothing reads promises what does not happen."""
    ours = [path for path in files(REPOSITORY / "src", "**/*.py") if path.name not in ("settings.py", "keys.py")]
    read = {
        (prefix.rpartition(".")[2].lstrip("_"), node.attr)
        for path in ours
        for node in ast.walk(tree_of(path))
        if isinstance(node, ast.Attribute) and (prefix := dotted(node.value)) is not None
    }
    others = ("settings", "usual", "periods", "pool")
    """What sections are called where they are handed on by themselves."""

    unread = [
        key
        for key in KEYS
        for section, _, name in [key.rpartition(".")]
        if not any((prefix, name) in read for prefix in (section, *others))
    ]

    assert [] == unread


LONG_FUNCTION = "def f() -> None:\n" + "    pass\n" * LINES_OF_FUNCTION
BAD: list[tuple[str, str, str]] = [
    ("long_files", "src/windlass/a.py", "\n" * (LINES_OF_SOURCE + 1)),
    ("long_files", "src/windlass/queue/a.sql", "\n" * (LINES_OF_OTHERS + 1)),
    (
        "long_functions",
        "src/windlass/a.py",
        "class A:\n" + LONG_FUNCTION.replace("def", "  def").replace("    ", "     "),
    ),
    ("empty_names", "src/windlass/utils/a.py", ""),
    ("empty_names", "src/windlass/a.py", "class JobManager: ..."),
    ("empty_names", "tests/a.py", "def common_things(): ..."),
    ("impure", "src/windlass/queue/a.py", "import datetime as d\nd.datetime.now()"),
    ("impure", "src/windlass/queue/a.py", "from random import random"),
    ("impure", "src/windlass/job.py", "from uuid import uuid4"),
    ("impure", "src/windlass/wire.py", "import asyncio\nasync def f(): await asyncio.sleep(0)"),
    ("sleeps", "tests/test_a.py", "import asyncio\nasync def f(): await asyncio.sleep(0.1)"),
    ("sleeps", "tests/test_a.py", "from time import sleep\nsleep(1)"),
    ("sql_in_python", "src/windlass/engine/a.py", 'x = f"SELECT id FROM {1}"'),
    ("sql_in_python", "src/windlass/queue/a.py", 'run("""\n  UPDATE queue SET place = 1""")'),
    ("undocumented", "src/windlass/a.py", "x = 1"),
    ("undocumented", "tests/test_a.py", '"""A."""\ndef test_a(): ...'),
]
GOOD: list[tuple[str, str, str]] = [
    ("impure", "src/windlass/queue/a.py", "def f(now): return now()"),
    ("impure", "src/windlass/engine/a.py", "import time"),
    ("sleeps", "tests/test_a.py", "import asyncio\nasync def f(): await asyncio.sleep(0)"),
    ("sql_in_python", "src/windlass/queue/a.py", '"""The SELECT of a claim."""\nx = "UPDATE to the job"'),
    ("empty_names", "src/windlass/a.py", "from contextlib import contextmanager"),
]


def broken(rule: str, root: Path, path: str, text: str) -> bool:
    """Say whether `rule` finds something in a tree of one file."""
    (root / path).parent.mkdir(parents=True, exist_ok=True)
    (root / path).write_text(text)
    return bool(globals()[rule](root))


@pytest.mark.parametrize(("rule", "path", "text"), BAD)
def test_a_broken_rule_is_seen(rule: str, path: str, text: str, tmp_path: Path) -> None:
    """Each rule finds its like in a tree of one bad file, and nothing in an empty tree."""
    assert not globals()[rule](tmp_path)

    assert broken(rule, tmp_path, path, text)


@pytest.mark.parametrize(("rule", "path", "text"), GOOD)
def test_a_kept_rule_is_left_alone(rule: str, path: str, text: str, tmp_path: Path) -> None:
    """What only looks like a breach is none."""
    assert not broken(rule, tmp_path, path, text)


@pytest.mark.parametrize(
    ("pattern", "text"),
    [(UNFINISHED, "x = 1  # TODO later"), (UNFINISHED, "-- FIXME"), (MACHINE_PATH, 'open("/home/ann/x")')],
)
def test_a_bad_line_is_seen(pattern: re.Pattern[str], text: str, tmp_path: Path) -> None:
    """Unfinished work and paths of a machine are found, with file and line."""
    (tmp_path / "src").mkdir()
    (tmp_path / "src" / "a.sql").write_text(f"\n{text}\n")

    assert [f"src/a.sql:2: {text}"] == found(tmp_path, TEXT_FILES, pattern)
