"""`windlass config`: what the settings are and where each comes from; and how commands get theirs."""

from __future__ import annotations

import json
import os
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, Literal, TypeVar

import click

from windlass.config import Loaded, load
from windlass.config.keys import SECRETS
from windlass.config.load import flat
from windlass.config.redact import HIDDEN, url, whole_url

Command = TypeVar("Command", bound=Callable[..., Any])


def config_option(command: Command) -> Command:
    """Add `--config FILE`; WINDLASS_CONFIG is read by `load`."""
    option = click.option(
        "--config", "config_path", metavar="FILE", help="Settings. Default: WINDLASS_CONFIG, else ./windlass.toml."
    )
    return option(command)


def load_settings(flags: Mapping[str, object]) -> Loaded:
    """Return the settings of this process; `flags` are by key, `config` is the path of the file."""
    return load(flags, os.environ, Path.cwd())


@click.group()
def config() -> None:
    """Look at the settings."""


@config.command()
@config_option
@click.option("-o", "--output", type=click.Choice(["table", "json"]), default="table", show_default=True)
def show(config_path: str | None, output: Literal["table", "json"]) -> None:
    """Tell every setting, its value and where it came from; secrets are hidden.

    Example: windlass config show --config windlass.toml -o json
    """
    loaded = load_settings({"config": config_path})
    rows = [(key, visible(key, value), loaded.sources[key]) for key, value in flat(loaded.settings).items()]
    if output == "json":
        named = [{"key": key, "value": value, "source": source} for key, value, source in rows]
        click.echo(json.dumps({"settings": named, "warnings": loaded.warnings}, indent=2))
        return
    texts = [("KEY", "VALUE", "SOURCE"), *((key, _text(value), source) for key, value, source in rows)]
    widths = [max(len(row[column]) for row in texts) for column in (0, 1)]
    # One value of a long list would push the sources of all others out of sight.
    widths[1] = min(widths[1], 40)
    for key, value, source in texts:
        click.echo(f"{key:<{widths[0]}}  {value:<{widths[1]}}  {source}")
    for warning in loaded.warnings:
        click.echo(f"Warning: {warning}", err=True)


def visible(key: str, value: object) -> object:
    """Return the value of a key without what must not be seen: whole secrets, and passwords within URLs."""
    if key in SECRETS and value is not None and not key.endswith("url"):
        return HIDDEN
    if isinstance(value, str):
        return whole_url(value) if key.endswith("url") else url(value)
    return value


def _text(value: object) -> str:
    if isinstance(value, tuple):
        return ",".join(map(str, value)) or "-"
    if isinstance(value, bool):
        return str(value).lower()
    if isinstance(value, float):
        return f"{value:g}" if value < 1e6 else f"{value:.0f}"
    return "-" if value is None else str(value)
