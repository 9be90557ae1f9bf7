"""Wrong clocks: a process whose wall clock can be moved while it runs, and the clock of a PostgreSQL."""

from __future__ import annotations

import asyncio
import shutil
import struct
import subprocess
from pathlib import Path

from tests.proofs.witness import Connection

SOURCE = Path(__file__).with_suffix(".c")
LINE = "windlass.clock_shift = "
_FORM = struct.Struct("=q")


class Skew:
    """The wall clock of one process: by how many seconds it is wrong."""

    def __init__(self, library: Path, file: Path) -> None:
        self._file = file
        self.settings = {"LD_PRELOAD": str(library), "SKEW_FILE": str(file)}
        """Variables of the process."""
        self.set(0)

    def set(self, seconds: int) -> None:
        """Move the clock, in the midst of whatever the process does."""
        if self._file.exists():
            with self._file.open("r+b") as file:
                file.write(_FORM.pack(seconds))
        else:
            self._file.write_bytes(_FORM.pack(seconds))


def built(folder: Path) -> Path | None:
    """Return the library that processes preload; None where there is no compiler."""
    compiler = shutil.which("cc") or shutil.which("gcc")
    if compiler is None:
        return None
    library = folder / "skew.so"
    subprocess.run([compiler, "-shared", "-fPIC", "-O2", "-o", str(library), str(SOURCE), "-ldl"], check=True)
    return library


async def move_database(connection: Connection, span: str) -> None:
    """Move the clock of the cluster for all who are connected, by a line of its configuration and a reload."""
    config = Path(await connection.fetchval("SHOW config_file"))
    before = (await asyncio.to_thread(config.read_text, "utf-8")).partition(LINE)[0]
    await asyncio.to_thread(config.write_text, f"{before}{LINE}'{span}'\n", "utf-8")
    await connection.execute("SELECT pg_reload_conf()")
    while span != await connection.fetchval("SELECT coalesce(current_setting('windlass.clock_shift', true), '')"):
        await connection.execute("SELECT pg_sleep(0.01)")
