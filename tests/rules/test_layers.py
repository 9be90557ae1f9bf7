"""Imports go one way: cli, server, worker, client → engine → queue → db; the pure modules know none of these."""

from __future__ import annotations

from pathlib import Path

from tests.rules.source import REPOSITORY, files, outline_of

PURE = {"job", "errors", "wire", "clock", "ids", "durations", "shards", "config", "log", "httpclient"}
PURE_STEPS = ("queue.retry", "queue.cron")
BELOW_ENGINE = {"queue", "db"}
ALL = {"cli", "server", "worker", "client", "embedded", "engine", "queue", "db", "bench", "testing", "compat", "sample"}

# What each package may import beyond itself and the pure modules.
MAY_IMPORT = {
    "db": set[str](),
    "queue": {"db"},
    "engine": BELOW_ENGINE,
    "server": {"engine", "queue"},  # endpoints know no database
    "embedded": {"server", "engine", *BELOW_ENGINE},  # a server without a port, inside a user's program
    "client": {"embedded"},  # where no server runs; and the pure steps, which read triggers as servers do
    "worker": {"client", "engine", *BELOW_ENGINE},
    "testing": ALL - {"cli", "bench"},
    "compat": {"client", "worker"},
    "sample": {"App", "Context", "every"},  # as a user: only the public door
    "cli": ALL,
    "bench": ALL,
    "": {"client", "worker"},  # windlass/__init__.py, the public door
    "__main__": {"cli"},
}


def wrong_imports(package: Path) -> list[str]:
    """Return a line for each import below `package` (the folder windlass) that goes the wrong way."""
    wrong = []
    for path in files(package, "**/*.py"):
        parts = path.relative_to(package).with_suffix("").parts
        folder = ".".join((package.name, *parts[:-1]))
        own = ".".join(parts[:-1] if parts[-1] == "__init__" else parts)
        for line, name in outline_of(path).imported(folder):
            if name.startswith(f"{package.name}."):
                target = name.removeprefix(f"{package.name}.")
                if not allowed(own, target):
                    wrong.append(f"{path.relative_to(package)}:{line}: {own or '__init__'} imports {target}")
    return wrong


def allowed(own: str, target: str) -> bool:
    """Say whether the module `own` may import `target`, both named from inside windlass."""
    layer, target_layer = own.split(".")[0], target.split(".")[0]
    if target_layer in PURE or target_layer.startswith("__"):
        return True
    if layer in PURE or is_pure_step(own):
        return is_pure_step(own) and is_pure_step(target)
    if layer == "client" and is_pure_step(target):
        return True
    return target_layer == layer or target_layer in MAY_IMPORT.get(layer, set())


def is_pure_step(name: str) -> bool:
    """Say whether a module of queue/ is pure."""
    return any(f"{name}.".startswith(f"{step}.") for step in PURE_STEPS)


def test_imports_go_one_way() -> None:
    """A module imports its own package, the layers below it and the pure modules, nothing else."""
    assert [] == wrong_imports(REPOSITORY / "src" / "windlass")


def test_every_package_has_a_layer() -> None:
    """A package or module that the table of layers does not name has no place yet."""
    package = REPOSITORY / "src" / "windlass"
    present = {path.relative_to(package).parts[0].removesuffix(".py") for path in files(package, "**/*.py")}

    assert set() == present - set(MAY_IMPORT) - PURE - {"__init__", "__main__"}


def test_a_wrong_import_is_seen(tmp_path: Path) -> None:
    """Absolute, relative, of the package itself, or only for types: an import upwards is reported with its line."""
    package = tmp_path / "windlass"
    bad = {
        "job.py": "from windlass.db import Row\n",
        "db/open.py": "import os\nfrom windlass.queue.claim import claim\n",
        "queue/claim.py": "from ..server import routes\n",
        "queue/cron/walk.py": "from windlass.queue import claim\n",
        "queue/retry.py": "from windlass.db import base\n",
        "server/jobs.py": "def f():\n    from windlass import db\n",
        "__init__.py": "import windlass.server.routes\n",
    }
    good = {
        "queue/cron/series.py": "from windlass.queue import retry\nfrom windlass.queue.cron.walk import walk\n",
        "queue/report.py": "from .retry import decide\nfrom windlass.db import load\nfrom windlass import ids\n",
        "client/triggers.py": "from windlass.queue.cron import check_trigger\n",
        "cli/migrate.py": "from windlass.db.migrate import migrate\n",
        "db/__init__.py": "from .open import open_database\n",
    }
    for name, text in {**bad, **good}.items():
        (package / name).parent.mkdir(parents=True, exist_ok=True)
        (package / name).write_text(text)

    assert sorted(bad) == [line.split(":")[0] for line in wrong_imports(package)]
