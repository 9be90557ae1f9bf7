"""A look at an application before `windlass up` starts anything: can it be imported, and which database does it name.

In a process of its own, so that the server never runs user code: `python -m windlass.cli.look TARGET` answers in JSON.
"""

from __future__ import annotations

import os
import subprocess
import sys

import click
import msgspec

from windlass.config.environment import for_workers
from windlass.errors import SetupError, WindlassError
from windlass.worker.load import load_app


class Looked(msgspec.Struct, frozen=True, kw_only=True):
    """What was found; of an application that cannot be imported, why."""

    database: str | None = None
    problem: str | None = None


def look(target: str) -> Looked:
    """Return what an application says of itself; SetupError if its process ends without an answer."""
    command = [sys.executable, "-m", "windlass.cli.look", target]
    # As the workers will import it: without the secrets of the server.
    result = subprocess.run(command, stdout=subprocess.PIPE, env=for_workers(os.environ), check=False)
    lines = result.stdout.splitlines()
    try:
        return msgspec.json.decode(lines[-1] if lines else b"", type=Looked)
    except msgspec.MsgspecError:
        raise SetupError(f"Importing {target} ended its process (exit code {result.returncode}). Mend it.") from None


def _looked(target: str) -> Looked:
    try:
        app = load_app(target)
    except WindlassError as error:
        return Looked(problem=str(error))
    return Looked(database=getattr(app, "database", None))


if __name__ == "__main__":
    # The module may have printed something without an end of line.
    click.echo(b"\n" + msgspec.json.encode(_looked(sys.argv[1])))
