"""Watch the Python files of an application: which have changed since the last look."""

from __future__ import annotations

import asyncio
import importlib.machinery
import os
from collections.abc import AsyncIterator, Iterator, Mapping, Sequence
from pathlib import Path

LOOK_S = 0.5
NAMED = 5
PASSED_OVER = frozenset({"__pycache__", "node_modules", "site-packages", "venv"})
Seen = Mapping[str, tuple[int, int]]
"""Of each file, when it was written and its size."""


def folder_of(target: str, directory: Path) -> Path:
    """Return the folder that has the code of `package.module:app` or `path/file.py:app`; `directory` if unknown."""
    module = target.partition(":")[0]
    if module.endswith(".py"):
        return (directory / module).resolve().parent
    first = module.partition(".")[0]
    found = importlib.machinery.PathFinder.find_spec(first, [str(directory)])
    if found is None:
        found = importlib.machinery.PathFinder.find_spec(first)
    if found is None or found.origin is None:
        return directory
    return Path(found.origin).resolve().parent


def look(folder: Path) -> Seen:
    """Return the Python files at and below a folder."""
    return {entry.path: (stat.st_mtime_ns, stat.st_size) for entry, stat in _files(folder)}


def changed(before: Seen, now: Seen) -> list[str]:
    """Return the paths that were written, added or removed between two looks, by name."""
    return sorted(path for path in before.keys() | now.keys() if before.get(path) != now.get(path))


def names_of(paths: Sequence[str]) -> str:
    """Return the first few paths, as they are called from here."""
    more = f" and {len(paths) - NAMED} more" if len(paths) > NAMED else ""
    return ", ".join(os.path.relpath(path) for path in paths[:NAMED]) + more


async def changes(folder: Path) -> AsyncIterator[list[str]]:
    """Yield the paths that have changed, each time some have; for ever."""
    before = await asyncio.to_thread(look, folder)
    while True:
        await asyncio.sleep(LOOK_S)
        now = await asyncio.to_thread(look, folder)
        if found := changed(before, now):
            yield found
        before = now


def _files(folder: Path) -> Iterator[tuple[os.DirEntry[str], os.stat_result]]:
    folders = [str(folder)]
    while folders:
        try:
            entries = list(os.scandir(folders.pop()))
        except OSError:  # removed meanwhile, or not ours to read
            continue
        for entry in entries:
            try:
                if entry.is_dir(follow_symlinks=False):
                    if entry.name not in PASSED_OVER and not entry.name.startswith("."):
                        folders.append(entry.path)
                elif entry.name.endswith(".py"):
                    yield entry, entry.stat()
            except OSError:
                continue
