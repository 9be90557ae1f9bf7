"""Run the tests of mutants, several at a time, against one PostgreSQL."""

from __future__ import annotations

import asyncio
import json
import os
import re
import signal
import sys
import tempfile
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from tests.mutants import verdict
from tests.mutants.mutant import REPOSITORY, DoesNotApply, Mutant, copied, plant
from tests.postgres_run import URL_VARIABLE

LONGEST_S = 180
# Raised by a mutant that is no working program, so it proves nothing about the guard.
SLIPS = re.compile(
    r"^builtins\.(Import|Name|Syntax|Attribute|Type|NotImplemented)Error$|SqlFileError$|^(setup|teardown): "
    r"|^asyncpg\.exceptions\.(\w*Syntax|Undefined|Ambiguous|Datatype|Indeterminate)\w*Error$|ProgrammingError$"
)


@dataclass(frozen=True)
class Outcome:
    """What became of a mutant: caught, or not and why."""

    caught: bool
    seconds: float
    why: str


async def replay(mutant: Mutant, url: str) -> Outcome:
    """Make one mutant, run its tests, and return whether all of them noticed."""
    begun = time.monotonic()
    with tempfile.TemporaryDirectory(prefix="windlass-mutant-") as folder:
        source = copied(Path(folder))
        try:
            plant(mutant, source)
        except DoesNotApply as problem:
            return Outcome(False, time.monotonic() - begun, f"does not apply: {problem}")
        chosen = [*mutant.tests, *(["-k", mutant.only] if mutant.only else [])]
        ends, output = await ends_of(["-n", "0", *chosen], source=source, folder=Path(folder), url=url)
    why = "" if ends and all(noticed(end) for end in ends.values()) else explained(ends, output)
    return Outcome(not why, time.monotonic() - begun, why or how(ends))


async def unmutated(mutants: Sequence[Mutant], url: str, *, jobs: int) -> str:
    """Run every named test on the product as it is; return what is wrong with them, or nothing."""
    with tempfile.TemporaryDirectory(prefix="windlass-mutant-") as folder:
        tests = sorted({test for mutant in mutants for test in mutant.tests})
        ends, output = await ends_of(["-n", str(jobs), *tests], source=copied(Path(folder)), folder=None, url=url)
    return "" if not ends else f"These tests fail without any mutant:\n{output}"


async def ends_of(arguments: list[str], *, source: Path, folder: Path | None, url: str) -> tuple[dict[str, str], str]:
    """Run pytest on the Windlass at `source`; return how its tests ended, and what it printed.

    Without a folder only whether it failed: an empty answer says that it did not.
    """
    environment = os.environ | {"PYTHONPATH": str(source), URL_VARIABLE: url, verdict.SOURCE: str(source)}
    command = [sys.executable, "-m", "pytest", "-q", "--no-header", "--tb=short", "-p", "no:cacheprovider"]
    if folder is not None:
        environment[verdict.VERDICTS] = str(folder / "verdicts.json")
        command += ["-p", "tests.mutants.verdict"]
    process = await asyncio.create_subprocess_exec(
        *command,
        *arguments,
        cwd=REPOSITORY,
        env=environment,
        stdin=asyncio.subprocess.DEVNULL,
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.STDOUT,
        start_new_session=True,
    )
    try:
        told, _ = await asyncio.wait_for(process.communicate(), LONGEST_S * (1 if folder else 5))
    except TimeoutError:
        return {}, f"it did not end within {LONGEST_S} s"
    finally:
        if process.returncode is None:
            os.killpg(process.pid, signal.SIGKILL)
            await process.wait()
    output = told.decode(errors="replace")
    if folder is None:
        return ({} if process.returncode == 0 else {"all": "failed"}), output
    verdicts = folder / "verdicts.json"
    return (json.loads(verdicts.read_text()) if verdicts.exists() else {}), output


def noticed(end: str) -> bool:
    """Say whether a test ended as one does that has noticed the missing guard."""
    return end not in ("passed", "skipped") and not SLIPS.search(end) and "Skipped" not in end


def explained(ends: dict[str, str], output: str) -> str:
    """Return why a mutant is not caught."""
    wrong = [f"{test.split('::', 1)[-1]}: {end}" for test, end in ends.items() if not noticed(end)]
    return "; ".join(wrong) or "no test ran: " + output.strip()[-600:]


def how(ends: dict[str, str]) -> str:
    """Return what the tests raised, shortly."""
    return ", ".join(sorted({end.rpartition(".")[2] for end in ends.values()}))
