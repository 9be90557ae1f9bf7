"""What `windlass up` says when it is up: where, what runs, and commands to try."""

from __future__ import annotations

import os
import shlex
import shutil
import sys
from collections.abc import Mapping
from pathlib import Path

from rich.console import Console
from rich.text import Text

from windlass.cli.shown import console, fields_of
from windlass.config import Loaded, load
from windlass.config.address import sqlite_file
from windlass.config.redact import whole_url as without_password
from windlass.server.run import keys_required

SAMPLE = "windlass.sample:app"
SAMPLE_DATABASE = "sqlite:///windlass-sample.db"
"""Its own, so that whoever tries it finds none of its jobs and schedules in the database of their application."""
SAMPLE_JOB = 'submit add \'{"x": 1, "y": 2}\' --wait'


def banner(loaded: Loaded, url: str, *, app: str | None) -> None:
    """Print it."""
    out = console()
    workers = loaded.settings.workers
    threads = f"{workers.threads} thread{'s' if workers.threads > 1 else ''}"
    out.print(
        Text.assemble("Windlass is up at ", (url, "bold green"), " (what it can do: ", (f"{url}/docs", "bold"), ")")
    )
    database = loaded.settings.database.url
    fields = {
        "  database": without_password(database) + (" (the sample's own)" if database == SAMPLE_DATABASE else ""),
        "  application": app or "none; the work kinds of the settings are served",
        "  workers": f"{workers.default_count} to {workers.max_count} processes, {threads} each",
    }
    out.print(fields_of(fields))
    if not keys_required(loaded.settings):
        out.print(Text("  No key is needed: everybody on this machine may do everything.", style="yellow"))
    _to_try(out, loaded, url, app=app)


def _to_try(out: Console, loaded: Loaded, url: str, *, app: str | None) -> None:
    program = shlex.join(program_words(sys.argv[0], Path.cwd()))
    # Elsewhere the commands find the server by the settings of this folder.
    where = f" --url {url}" if needs_url(loaded, url) else ""
    is_sample = app is not None and app.startswith("windlass.sample")
    tries = (*([SAMPLE_JOB] if is_sample else []), "jobs list", "schedules list", "top")
    out.print()
    out.print("Try in another terminal, in this folder:")
    for words in tries:
        out.print(Text.assemble("  ", (f"{program} {words}{where}", "cyan")), soft_wrap=True)
    out.print()
    out.print("Ctrl-C stops everything; nothing is lost.")


def needs_url(loaded: Loaded, url: str) -> bool:
    """Say whether commands in another terminal in this folder would look for the server elsewhere."""
    # The other terminal may have our environment, or not.
    environments: tuple[Mapping[str, str], ...] = (os.environ, {})
    return not all(_leads_to(load({}, environment, Path.cwd()), loaded, url) for environment in environments)


def _leads_to(theirs: Loaded, ours: Loaded, url: str) -> bool:
    """Say whether commands with these settings find the server."""
    file = sqlite_file(theirs.settings.database.url)
    if theirs.sources["server.url"] != "default" or file is None:
        return theirs.settings.server.url == url
    return file == sqlite_file(ours.settings.database.url)


def program_words(called: str, directory: Path) -> list[str]:
    """Return how to call this program from another terminal whose folder is `directory`."""
    path = Path(called)
    if path.name != "windlass":
        return [_shortest(Path(sys.executable), directory), "-m", "windlass"]
    found = shutil.which("windlass")
    in_environment = sys.prefix != sys.base_prefix  # which another terminal may not have activated
    if found is not None and not in_environment and Path(found).samefile(path):
        return ["windlass"]
    return [_shortest(path, directory)]


def _shortest(path: Path, directory: Path) -> str:
    whole = Path(os.path.abspath(path))  # noqa: PTH100 a link into an environment must stay one
    return str(whole.relative_to(directory)) if whole.is_relative_to(directory) else str(whole)
