"""`windlass tenants`: which there are; remove one that has nothing left, or erase one with everything it has."""

from __future__ import annotations

import time
from typing import Any

import click

from windlass.cli.calls import Server, asks_server, confirm
from windlass.cli.shown import Column, Output, output_option, show_rows, when
from windlass.errors import NotFound

LOOK_S = 1.0
COLUMNS: tuple[Column, ...] = (
    ("tenant", lambda tenant: tenant["name"]),
    ("created", lambda tenant: when(tenant["created_at"])),
    ("paused", lambda tenant: "paused" if tenant["paused"] else ""),
    ("erasing", lambda tenant: "" if tenant["erasing"] is None else _removed(tenant["erasing"])),
)


@click.group()
def tenants() -> None:
    """See which tenants there are; delete or erase one."""


@tenants.command(name="list")
@output_option()
@asks_server
def list_(server: Server, output: Output) -> None:
    """List tenants by name.

    Example: windlass tenants list
    """
    show_rows(server.pages("/tenants", "tenants"), output, COLUMNS)


@tenants.command()
@click.argument("name")
@click.option("--erase", is_flag=True, help="Remove everything it has too: jobs, results, logs, schedules, keys.")
@click.option("--yes", is_flag=True, help="Do not ask.")
@asks_server
def delete(server: Server, name: str, erase: bool, yes: bool) -> None:
    """Remove a tenant that has nothing left; with --erase one with everything it has, for good.

    Example: windlass tenants delete acme --erase
    """
    if not erase:
        server.call("DELETE", f"/tenants/{name}")
        click.echo(f"Deleted tenant {name}.")
        return
    confirm(f"erase tenant {name} with everything it has, for good", yes=yes)
    answer = server.call("DELETE", f"/tenants/{name}", erase="true")
    while answer is not None:
        click.echo(f"Removed so far: {_removed(answer)}.", err=True)
        if answer["waits"]:
            click.echo("Waiting for a transaction that began before. Interrupt at will: the servers go on.", err=True)
            time.sleep(LOOK_S)
        try:
            answer = server.call("DELETE", f"/tenants/{name}", erase="true")
        except NotFound:  # the servers have finished it
            answer = None
    click.echo(f"Erased tenant {name}.")


def _removed(erasing: dict[str, Any]) -> str:
    return ", ".join(f"{count} {kind}" for kind, count in erasing["removed"].items()) or "nothing"
