"""The command line: one file per noun; errors go to stderr with the exit code of their class."""

from __future__ import annotations

import sys
from typing import Any

import click

from windlass import __version__
from windlass.cli.bench import bench
from windlass.cli.check import check
from windlass.cli.config import config
from windlass.cli.keys import keys
from windlass.cli.migrate import migrate
from windlass.cli.server import server
from windlass.cli.status import status
from windlass.cli.worker import worker
from windlass.errors import WindlassError


class _Group(click.Group):
    def invoke(self, ctx: click.Context) -> Any:
        """Turn our errors into a line on stderr and their exit code; no traceback for what we foresaw."""
        try:
            return super().invoke(ctx)
        except WindlassError as error:
            click.echo(f"Error: {error}", err=True)
            ctx.exit(error.exit_code)


@click.group(cls=_Group, context_settings={"help_option_names": ["-h", "--help"]})
@click.version_option(__version__, prog_name="windlass")
def cli() -> None:
    """Windlass: a durable job queue on PostgreSQL or on one SQLite file.

    Exit codes: 0 done, 1 failed, 2 wrong usage, 3 not found, 4 conflict, 5 unavailable, 130 interrupted.
    """


for command in (server, worker, status, migrate, check, config, keys, bench):
    cli.add_command(command)


def main() -> None:
    """Run the command line."""
    sys.exit(cli.main(prog_name="windlass"))
