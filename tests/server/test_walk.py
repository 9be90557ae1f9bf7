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
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import msgspec
import pytest

from tests.proofs.processes import environment, server_arguments, started
from windlass.queue.keys import make_token

PAGE = Path(__file__).parents[2] / "docs" / "api.md"
STAND_IN = Path(__file__).with_name("curl_stand_in.py")
_BLOCK = re.compile(r"^```(sh|json|text)\n(.*?)^```$", re.MULTILINE | re.DOTALL)
_END = "--- end of block"
LONGEST_S = 60.0


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


@pytest.mark.parametrize("curl", [*(["curl"] if shutil.which("curl") else []), "stand-in"])
async def test_the_walk_through_the_api_is_true(sqlite_url: str, tmp_path: Path, curl: str) -> None:
    """Whoever types what the page says sees what the page shows."""
    page = list(blocks(PAGE.read_text()))
    token = make_token()
    keys = {"WINDLASS_SECURITY_KEYS_REQUIRED": "true", "WINDLASS_SECURITY_BOOTSTRAP_KEY": token}

    async with started(*server_arguments(sqlite_url), settings=keys, cwd=tmp_path) as server:
        variables = {"WINDLASS_URL": f"{await server.serving()}/api/v1", "WINDLASS_KEY": token}
        prepare = "" if curl == "curl" else f'curl() {{ {shlex.join([sys.executable, "-IS", str(STAND_IN)])} "$@"; }}'
        printed = await _typed([prepare, *(block.commands for block in page)], tmp_path, variables)

    assert len(page) > 30
    for block, text in zip(page, printed[1:], strict=True):
        assert holds(block, text), f"docs/api.md:{block.line}\n{block.commands}\nprinted\n{text}\nand not\n{block.shown}"


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
