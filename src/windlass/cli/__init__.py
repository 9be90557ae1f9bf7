"""The command line: one file per noun; errors go to stderr with the exit code of their class.

A command's module is imported when the command is called, so that `windlass submit` does not pay for the server.
"""

from __future__ import annotations

import importlib
import sys
from typing import Any

import click

from windlass import __version__
from windlass.errors import WindlassError

COMMANDS = (
    "up",
    "dev",
    "demo",
    "server",
    "worker",
    "submit",
    "jobs",
    "dlq",
    "schedules",
    "queues",
    "workers",
    "status",
    "top",
    "migrate",
    "check",
    "check-app",
    "config",
    "keys",
    "tenants",
    "bench",
    "completion",
)
"""Each is in the module of its name."""
MODES = ("server", "worker")
INTERRUPTED = 130


class _Group(click.Group):
    def list_commands(self, _ctx: click.Context) -> list[str]:
        """Return the commands in the order in which a user meets them."""
        return list(COMMANDS)

    def get_command(self, _ctx: click.Context, name: str) -> click.Command | None:
        """Return a command, imported now; None if there is none of this name."""
        if name not in COMMANDS:
            return None
        plain = name.replace("-", "_")
        found = getattr(importlib.import_module(f"windlass.cli.{plain}"), plain)
        assert isinstance(found, click.Command)
        return found

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        """Read the arguments; those of `--mode`, or of nothing where a mode is set, are those of its command."""
        try:
            return super().parse_args(ctx, _with_mode(args))
        except WindlassError as error:
            click.echo(f"Error: {error}", err=True)
            ctx.exit(error.exit_code)

    def invoke(self, ctx: click.Context) -> Any:
        """Turn our errors into a line on stderr and their exit code; no traceback for what we foresaw."""
        try:
            return super().invoke(ctx)
        except WindlassError as error:
            click.echo(f"Error: {error}", err=True)
            ctx.exit(error.exit_code)
        except KeyboardInterrupt:
            ctx.exit(INTERRUPTED)


def _with_mode(args: list[str]) -> list[str]:
    if args and args[0] == "--mode" and len(args) > 1 and args[1] in MODES:
        return args[1:]
    if args and args[0].startswith("--mode=") and args[0].removeprefix("--mode=") in MODES:
        return [args[0].removeprefix("--mode="), *args[1:]]
    if args:
        return args
    from windlass.cli.config import load_settings

    mode = load_settings({}).settings.mode
    return [] if mode is None else [mode]


@click.group(cls=_Group, context_settings={"help_option_names": ["-h", "--help"]})
@click.version_option(__version__, prog_name="windlass")
@click.option("--mode", type=click.Choice(MODES), expose_value=False, help="The same as the command; also by MODE.")
def cli() -> None:
    """Windlass: a durable job queue on PostgreSQL or on one SQLite file.

    Begin with `windlass up`.

    Exit codes: 0 done, 1 failed, 2 wrong usage, 3 not found, 4 conflict, 5 unavailable, 130 interrupted.
    """


def main() -> None:
    """Run the command line."""
    sys.exit(cli.main(prog_name="windlass"))
