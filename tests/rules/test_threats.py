"""Threats that are held off by what the source does not do: a look at every file says so."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.rules.source import REPOSITORY, dotted, files, outline_of, tree_of

CODE_FROM_DATA = re.compile(r"^(eval|exec|compile|__import__|os\.(system|popen))$")
CODE_MODULES = {"pickle", "marshal", "shelve", "dill", "cloudpickle", "jsonpickle", "yaml", "commands", "pty"}
STARTS = re.compile(
    r"^(subprocess\.\w+|asyncio\.create_subprocess_(exec|shell)|os\.(exec\w*|spawn\w*|posix_spawn\w*|fork))$"
)

STARTERS = {
    "src/windlass/cli/demo.py": "the demo starts this program itself",
    "src/windlass/cli/look.py": "looks at an application that the command line names",
    "src/windlass/cli/pool.py": "`windlass up` starts this program's own workers",
    "src/windlass/worker/cellprocess.py": "an isolated process is this interpreter with our module",
    "src/windlass/worker/child.py": "a runner is this interpreter with our module",
}
"""The only files that start processes, and what."""
WITHOUT_TEST = {11, 20}
"""Threats of which there is nothing to attack yet, or that the operator holds off."""
BY_CHANCE = {
    "src/windlass/client/shell.py": "pauses between tries",
    "src/windlass/engine/loops.py": "the default of a parameter: pauses between looks",
    "src/windlass/engine/outside.py": "the default of a parameter: jitter",
}
"""The only files that draw from a predictable source, and what for."""


def sources(root: Path) -> Iterator[tuple[str, Path]]:
    """Yield the files that are served or run for users, with their paths below the root; benchmarks are apart."""
    for path in files(root, "src/windlass/**/*.py"):
        name = str(path.relative_to(root))
        if not name.startswith("src/windlass/bench/"):
            yield name, path


def calls_of(path: Path) -> list[tuple[str, ast.Call]]:
    """Return every call of a name or an attribute of a name, with that name."""
    return [(dotted(node.func), node) for node in ast.walk(tree_of(path)) if isinstance(node, ast.Call)]


def runs_data(root: Path) -> set[str]:
    """Return the files in which a text could become code."""
    return {
        name
        for name, path in sources(root)
        if any(full.split(".")[0] in CODE_MODULES for _, full in outline_of(path).imported("windlass"))
        or any(CODE_FROM_DATA.match(called) for called, _ in calls_of(path))
    }


def starts_processes(root: Path) -> set[str]:
    """Return the files that start a process."""
    return {name for name, path in sources(root) if any(STARTS.match(called) for called, _ in calls_of(path))}


def uses_a_shell(root: Path) -> set[str]:
    """Return the files that hand a command to a shell."""
    return {
        name
        for name, path in sources(root)
        for called, call in calls_of(path)
        if called.endswith("create_subprocess_shell") or any(word.arg == "shell" for word in call.keywords)
    }


def predictable(root: Path) -> set[str]:
    """Return the files that use `random`, whose numbers can be foretold."""
    return {
        name
        for name, path in sources(root)
        if any(full.split(".")[0] == "random" for _, full in outline_of(path).imported("windlass"))
    }


def test_rel_t8_no_text_becomes_code() -> None:
    """Payloads are JSON: there is no pickle, eval or unsafe loader that one could reach."""
    assert set() == runs_data(REPOSITORY)


def test_rel_t23_only_our_own_programs_are_started() -> None:
    """No request names a command: the few places that start a process are known, and none asks a shell."""
    assert set(STARTERS) == starts_processes(REPOSITORY)
    assert set() == uses_a_shell(REPOSITORY)


def test_rel_t25_tokens_are_not_drawn_from_a_predictable_source() -> None:
    """`random` makes pauses uneven and nothing else; keys, sessions and ids come from `secrets`."""
    assert set(BY_CHANCE) == predictable(REPOSITORY)


def test_every_threat_has_a_control_and_a_test_of_its_name() -> None:
    """S12: the page about security names each threat; those that this program can hold off have tests."""
    page = (REPOSITORY / "docs" / "security.md").read_text(encoding="utf-8")
    tests = "".join(path.read_text(encoding="utf-8") for path in files(REPOSITORY, "tests/**/test_*.py"))

    assert [] == [number for number in range(1, 26) if not re.search(rf"^\|.*\bT{number}\b.*\|", page, re.MULTILINE)]
    assert WITHOUT_TEST == {number for number in range(1, 26) if f"def test_rel_t{number}_" not in tests}


def test_the_tests_that_the_page_names_are_there() -> None:
    """S12: where it says by what a control is shown, somebody finds it."""
    page = (REPOSITORY / "docs" / "security.md").read_text(encoding="utf-8")
    named = re.findall(r"`([\w/]*test_\w+\.py)`", page)

    assert named
    assert [] == [name for name in named if not (REPOSITORY / "tests" / name).exists()]


@pytest.mark.parametrize(
    ("rule", "text"),
    [
        (runs_data, "import pickle"),
        (runs_data, "from yaml import load"),
        (runs_data, "def f(text): return eval(text)"),
        (runs_data, "import os\nos.system('ls')"),
        (starts_processes, "import subprocess\nsubprocess.run(['ls'])"),
        (starts_processes, "import os\nos.execv('ls', [])"),
        (uses_a_shell, "import subprocess\nsubprocess.run('ls', shell=True)"),
        (predictable, "from random import choice"),
    ],
)
def test_a_breach_is_seen(rule: object, text: str, tmp_path: Path) -> None:
    """Each rule finds a file that breaks it."""
    (tmp_path / "src/windlass").mkdir(parents=True)
    (tmp_path / "src/windlass/a.py").write_text(text)

    assert callable(rule)
    assert {"src/windlass/a.py"} == rule(tmp_path)
