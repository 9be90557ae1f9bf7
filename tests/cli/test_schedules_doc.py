"""docs/schedules.md: its commands are commands, with options that exist."""

from __future__ import annotations

import re
import shlex

import click
import pytest

from tests.rules.source import REPOSITORY
from windlass.cli import cli

DOCUMENT = REPOSITORY / "docs" / "schedules.md"


def commands() -> list[str]:
    """Return the commands of the guide, in order, those behind a pipe too."""
    text = DOCUMENT.read_text(encoding="utf-8")
    blocks = re.findall(r"^```(\w*)\n(.*?)^```$", text, re.MULTILINE | re.DOTALL)
    lines = [line for language, block in blocks if not language for line in block.splitlines()]
    return [line.rpartition("| ")[2] for line in lines if re.match(r"(\S.* \| )?windlass ", line)]


def test_the_guide_has_commands() -> None:
    """The pattern finds them, also the one behind a pipe."""
    assert len(commands()) > 10
    assert any(command.startswith("windlass schedules import crontab - ") for command in commands())


@pytest.mark.parametrize("command", commands())
def test_a_command_of_the_guide_is_understood(command: str) -> None:
    """Its arguments are read to the end; nothing is run."""
    words = shlex.split(command)[1:]
    found: click.Command = cli
    while isinstance(found, click.Group):
        child = found.get_command(click.Context(found), words.pop(0))
        assert child is not None
        found = child

    found.make_context("windlass", words)
