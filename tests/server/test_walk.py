"""docs/api.md is true: its shell blocks are run in order against a real server, and their answers compared.

Each block of `sh` runs in the same bash; a block of `json` or `text` behind it is what it must print. Fields that are
not shown may be there, `…` stands for anything. Where there is no curl, tests/server/curl_stand_in.py is one.
"""

from __future__ import annotations

import asyncio
import json
import re
import shlex
import shutil
import sys
from asyncio.subprocess import PIPE, STDOUT
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager
from html import unescape
from pathlib import Path
from typing import Any

import msgspec
import pytest

from tests.proofs.processes import environment, server_arguments, started
from windlass.queue.keys import make_token
from windlass.server import reference
from windlass.server.openapi import document
from windlass.server.routes import ROUTES

PAGE = Path(__file__).parents[2] / "docs" / "api.md"
STAND_IN = Path(__file__).with_name("curl_stand_in.py")
_BLOCK = re.compile(r"^```(sh|json|text)\n(.*?)^```$", re.MULTILINE | re.DOTALL)
_END = "--- end of block"
LONGEST_S = 60.0
STATUS_LINE = r"\n%{http_code}\n"
CURLS = [*([["command", "curl"]] if shutil.which("curl") else []), [sys.executable, "-IS", str(STAND_IN)]]
"""The program, where there is one, and our own."""


class Block(msgspec.Struct, frozen=True):
    """What to type, and what comes."""

    line: int
    commands: str
    kind: str | None = None
    shown: str = ""


def blocks(page: str) -> Iterator[Block]:
    """Return the blocks of a page, each with the answer that stands behind it."""
    waiting: Block | None = None
    for found in _BLOCK.finditer(page):
        kind, text = found.groups()
        if kind == "sh":
            if waiting is not None:
                yield waiting
            waiting = Block(page.count("\n", 0, found.start()) + 1, text)
        elif waiting is not None:
            yield msgspec.structs.replace(waiting, kind=kind, shown=text)
            waiting = None
    if waiting is not None:
        yield waiting


def is_like(shown: Any, real: Any) -> bool:
    """Say whether an answer is what is shown of it."""
    if isinstance(shown, str) and "…" in shown:
        text = real if isinstance(real, str) else json.dumps(real)
        return re.fullmatch(".*".join(map(re.escape, shown.split("…"))), text, re.DOTALL) is not None
    if isinstance(shown, dict):
        return isinstance(real, dict) and all(name in real and is_like(shown[name], real[name]) for name in shown)
    if isinstance(shown, list):
        return isinstance(real, list) and len(shown) == len(real) and all(map(is_like, shown, real))
    return type(shown) is type(real) and bool(shown == real)


def holds(block: Block, printed: str) -> bool:
    """Say whether a block printed what is shown: JSON and status, or lines in this order with others between them."""
    if block.kind is None:
        return not printed.strip()
    *shown, status = block.shown.strip().split("\n")
    *real, real_status = printed.strip().split("\n")
    if status != real_status:
        return False
    if block.kind == "text":
        lines = iter(real)
        return all(any(is_like(line, other) for other in lines) for line in shown)
    if not shown:
        return not "".join(real)
    return is_like(json.loads("\n".join(shown)), json.loads("\n".join(real)))


@asynccontextmanager
async def walking(database_url: str, folder: Path) -> AsyncIterator[dict[str, str]]:
    """Give what a reader has set, for a block: the address of a server that asks for keys, and a key."""
    token = make_token()
    keys = {"WINDLASS_SECURITY_KEYS_REQUIRED": "true", "WINDLASS_SECURITY_BOOTSTRAP_KEY": token}
    async with started(*server_arguments(database_url), settings=keys, cwd=folder) as server:
        yield {"WINDLASS_URL": await server.serving(), "WINDLASS_KEY": token}


@pytest.mark.parametrize("curl", [CURLS[0], *(pytest.param(curl, marks=pytest.mark.exhaustive) for curl in CURLS[1:])])
async def test_the_walk_through_the_api_is_true(sqlite_url: str, tmp_path: Path, curl: list[str]) -> None:
    """Whoever types what the page says sees what the page shows."""
    page = list(blocks(PAGE.read_text()))

    async with walking(sqlite_url, tmp_path) as variables:
        use = f'curl() {{ {shlex.join(curl)} "$@"; }}'
        printed = await _typed([use, *(block.commands for block in page)], tmp_path, variables)

    assert len(page) > 30
    for block, text in zip(page, printed[1:], strict=True):
        assert holds(block, text), (
            f"docs/api.md:{block.line}\n{block.commands}\nprinted\n{text}\nand not\n{block.shown}"
        )


async def test_every_curl_of_the_reference_page_works(sqlite_url: str, tmp_path: Path) -> None:
    """Typed as it stands it reaches its operation and is understood; that there is no such job is an answer."""
    shown = re.findall("<pre>(.*?)</pre>", reference.page(document(ROUTES)), re.DOTALL)
    commands = [unescape(text).replace('/v1/events"', '/v1/events?seconds=0.1"') for text in shown]
    names = {"ID": "01890a5d-ac96-774b-bcce-b302099a8057", "NAME": "default", "WORKER": "worker-1", "KEY": "nobody"}

    async with walking(sqlite_url, tmp_path) as variables:
        use = f'curl() {{ {shlex.join([*CURLS[0], "-sS", "-w", STATUS_LINE])} "$@"; }}'
        _, *printed = await _typed([use, *commands], tmp_path, variables | names)

    statuses = [text.strip().rpartition("\n")[2] for text in printed]
    assert len(ROUTES) == len(commands)
    assert [] == [
        (command, text)
        for command, text, status in zip(commands, printed, statuses, strict=True)
        if status not in ("200", "201", "202", "204", "404", "409")
    ]


async def _typed(texts: list[str], folder: Path, variables: dict[str, str]) -> list[str]:
    """Type these into one bash; return what each has printed."""
    script = "".join(f"{text}\necho {shlex.quote(_END)}\n" for text in texts)
    bash = await asyncio.create_subprocess_exec(
        *("bash", "--noprofile", "--norc", "-s"),
        stdin=PIPE,
        stdout=PIPE,
        stderr=STDOUT,
        cwd=folder,
        env=environment(variables),
    )
    try:
        async with asyncio.timeout(LONGEST_S):
            said, _ = await bash.communicate(script.encode())
    finally:
        if bash.returncode is None:
            bash.kill()
            await bash.wait()
    return said.decode().split(f"{_END}\n")[: len(texts)]


def test_a_page_that_shows_something_else_is_seen() -> None:
    """The comparison tells a wrong status, a wrong value and a missing field from what is right."""
    block = Block(1, "", "json", '{"id": "…", "jobs": [{"fence": 2}], "detail": "fence … is stale"}\n409\n')
    right = '{"id":"x","jobs":[{"fence":2,"more":1}],"detail":"fence 1 is stale","also":null}\n409\n'

    assert holds(block, right)
    assert not holds(block, right.replace("409", "200"))
    assert not holds(block, right.replace('"fence":2', '"fence":3'))
    assert not holds(block, right.replace('"id"', '"name"'))
    assert not holds(block, right.replace("stale", "fresh"))
