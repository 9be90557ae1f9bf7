"""An application is found by the name of its module; whatever is wrong is said so that it can be mended."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from importlib.machinery import PathFinder
from pathlib import Path

import pytest

from windlass.errors import SetupError
from windlass.worker.load import load_app

ONE = "import windlass\napp = windlass.App()\n@app.task\ndef add(x, y): return x + y\n"


@pytest.fixture(autouse=True)
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """A folder to work in, whose modules are forgotten afterwards."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "path", [entry for entry in sys.path if entry])
    before = set(sys.modules)
    yield tmp_path
    for name in set(sys.modules) - before:
        del sys.modules[name]


def write(folder: Path, name: str, text: str) -> Path:
    """Write a module, with the packages above it."""
    path = folder / name
    path.parent.mkdir(parents=True, exist_ok=True)
    if path.parent != folder:
        (path.parent / "__init__.py").touch()
    path.write_text(text)
    return path


@pytest.mark.parametrize("target", ["shop.tasks:app", "shop.tasks", "shop/tasks.py", "shop/tasks.py:app"])
def test_an_application_is_found(folder: Path, target: str) -> None:
    """By module and name, by module alone, or by file; the folder one works in is looked into."""
    write(folder, "shop/tasks.py", ONE)

    assert ["add"] == list(load_app(target).tasks)


@pytest.mark.parametrize("target", ["shop", "shop.py"])
def test_a_file_beside_the_application_does_not_hide_the_library(folder: Path, target: str) -> None:
    """A queue.py there is found by nobody who asks for Python's; what is installed stands behind the folder."""
    write(folder, "shop.py", ONE)
    write(folder, "calendar.py", "")
    write(folder, "msgspec.py", "")

    load_app(target)

    found = {name: PathFinder.find_spec(name) for name in ("calendar", "msgspec")}
    origins = {name: spec.origin for name, spec in found.items() if spec is not None and spec.origin is not None}
    assert str(folder / "calendar.py") != origins["calendar"]
    assert str(folder / "msgspec.py") == origins["msgspec"]


def test_a_file_may_be_named_like_a_module_of_python(folder: Path) -> None:
    """A file called queue.py is loaded, and the library's queue stays what it is."""
    import queue

    path = write(folder, "queue.py", ONE)

    assert ["add"] == list(load_app(str(path)).tasks)
    assert sys.modules["queue"] is queue


def test_the_same_application_under_two_names_is_one(folder: Path) -> None:
    """An App that has two names in a module is not several."""
    write(folder, "one_app.py", ONE + "celery = app\n")

    assert ["add"] == list(load_app("one_app").tasks)


def test_a_name_may_have_dots(folder: Path) -> None:
    """The application may lie in something else."""
    write(folder, "holder_app.py", ONE + "class Held: inner = app\n")

    assert ["add"] == list(load_app("holder_app:Held.inner").tasks)


@pytest.mark.parametrize(
    ("target", "text", "problem"),
    [
        ("nowhere_at_all:app", ONE, "There is no module nowhere_at_all in"),
        ("bad_app.inner:app", ONE, "There is no module bad_app.inner in"),
        ("nowhere.py", ONE, "There is no file"),
        ("bad_app:other", ONE, r"There is no other in bad_app\. There is app\."),
        ("bad_app:other", "", r"There is no other in bad_app\. There is no App at all\."),
        ("bad_app:windlass", ONE, "bad_app:windlass is no App, but a module"),
        ("bad_app", "x = 1", r"There is no App in bad_app\. Write app = windlass.App\(\)"),
        ("bad_app", ONE + "two = windlass.App()\n", r"several Apps in bad_app: app, two\. Name one, as in bad_app:app"),
        ("bad_app", "import no_such_library\n", r"line 1 \(import no_such_library\): ModuleNotFoundError: No module"),
        ("bad_app", "def f():\n    return 1 / 0\nf()\n", r"bad_app.py, line 2 \(return 1 / 0\): ZeroDivisionError"),
        (
            "bad_app",
            "import windlass\nwindlass.cron('0 25 * * *')\n",
            r"bad_app.py, line 2 \(windlass.cron.* has hour 25",
        ),
        ("bad_app.py", "1 / 0\n", r"bad_app.py, line 1 \(1 / 0\): ZeroDivisionError"),
        ("bad_app", "x = = 1\n", r"bad_app.py, line 1: SyntaxError"),
        ("bad_app", "raise SystemExit(3)\n", r"line 1 \(raise SystemExit\(3\)\): SystemExit: 3"),
        (":app", ONE, "names no application"),
        ("bad_app:", ONE, "names no application"),
        ("", ONE, "names no application"),
    ],
)
def test_what_is_wrong_is_said(folder: Path, target: str, text: str, problem: str) -> None:
    """A missing module, name or file, something else in place of an App, several, or an error inside: each by name."""
    write(folder, "bad_app.py", text)

    with pytest.raises(SetupError, match=problem):
        load_app(target)
