"""`windlass dev`: `windlass up` whose workers start anew when the code changes."""

from __future__ import annotations

from typing import Any

import click

from windlass.cli.up import up, up_options


@click.command()
@click.argument("app", metavar="MODULE:APP")
@up_options
def dev(app: str, **options: Any) -> None:
    """Run everything while you write MODULE:APP: its workers start anew whenever one of its files is saved.

    Example: windlass dev shop.tasks:app
    """
    click.get_current_context().invoke(up, app=app, is_reloading=True, **options)
