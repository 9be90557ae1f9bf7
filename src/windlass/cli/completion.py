"""`windlass completion`: have the shell complete commands and options."""

from __future__ import annotations

import click
from click.shell_completion import get_completion_class


@click.command()
@click.argument("shell", type=click.Choice(["bash", "zsh", "fish"]))
@click.pass_context
def completion(ctx: click.Context, shell: str) -> None:
    """Print what SHELL must read to complete `windlass` commands and options.

    Example: eval "$(windlass completion bash)"; for good, put that line into ~/.bashrc
    """
    made = get_completion_class(shell)
    assert made is not None
    click.echo(made(ctx.find_root().command, {}, "windlass", "_WINDLASS_COMPLETE").source())
