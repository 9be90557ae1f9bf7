"""Write the requirements files: every package that make installs, with its version and the hashes of all its files.

pip resolves what pyproject.toml asks for; the hashes are those that pip's index tells, of every platform.
"""

from __future__ import annotations

import functools
import json
import re
import subprocess
import sys
import tempfile
import tomllib
import urllib.parse
import urllib.request
from collections.abc import Iterable
from pathlib import Path
from typing import Any

REPOSITORY = Path(__file__).parent.parent.parent
BUILD = ("hatchling", "editables")
AUDIT = ("pip-audit",)
HEAD = "# Made by `make lock`: every package, its version and the hashes of its files. pip installs nothing else.\n"

_LINK = re.compile(r"""<a[^>]*href=["']([^"'#]+)#sha256=([0-9a-f]{64})["']""")
_VERSION = re.compile(r"^(?P<name>.+?)-(?P<version>\d[^-]*?)(-.+\.whl|\.tar\.gz|\.zip)$")


def lock() -> None:
    """Write the files anew, with the newest versions that go together."""
    project = tomllib.loads((REPOSITORY / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    runtime = [*project["dependencies"], *BUILD]
    all_of_it = resolved([*runtime, *project["optional-dependencies"]["dev"]])
    needed = resolved(runtime, fixed=all_of_it)
    tools = {name: version for name, version in all_of_it.items() if name not in needed}
    for file, packages in {"": needed, "-dev": tools, "-audit": resolved(AUDIT)}.items():
        lines = [_lines(name, version) for name, version in sorted(packages.items())]
        (REPOSITORY / f"requirements{file}.txt").write_text(HEAD + "".join(lines), encoding="utf-8")


def resolved(requirements: Iterable[str], *, fixed: dict[str, str] | None = None) -> dict[str, str]:
    """Return the versions that pip would install by name, none other than the fixed ones."""
    with tempfile.TemporaryDirectory() as folder:
        constraints = Path(folder) / "constraints.txt"
        constraints.write_text("".join(f"{name}=={version}\n" for name, version in (fixed or {}).items()))
        report = Path(folder) / "report.json"
        options = ["--quiet", "--disable-pip-version-check", "--dry-run", "--ignore-installed", "--report", str(report)]
        command = [sys.executable, "-m", "pip", "install", *options, "-c", str(constraints), *requirements]
        subprocess.run(command, check=True)
        found: list[dict[str, Any]] = json.loads(report.read_text())["install"]
    return {normal(item["metadata"]["name"]): item["metadata"]["version"] for item in found}


def normal(name: str) -> str:
    """Return the name of a package as indexes write it."""
    return re.sub(r"[-_.]+", "-", name).lower()


def hashes(page: str, version: str) -> list[str]:
    """Return the hashes of all files of a version on the page of a package."""
    found = set()
    for address, digest in _LINK.findall(page):
        file = urllib.parse.unquote(address.rpartition("/")[2])
        if (parts := _VERSION.match(file)) and parts["version"] == version:
            found.add(digest)
    return sorted(found)


@functools.cache
def index() -> str:
    """Return the index that pip asks first."""
    told = subprocess.run(
        [sys.executable, "-m", "pip", "config", "get", "global.index-url"], capture_output=True, text=True, check=False
    ).stdout.strip()
    from pip._internal.models.index import PyPI

    return (told or PyPI.simple_url).rstrip("/")


def _lines(name: str, version: str) -> str:
    address = f"{index()}/{name}/"
    with urllib.request.urlopen(urllib.request.Request(address, headers={"accept": "text/html"}), timeout=60) as page:
        found = hashes(page.read().decode(), version)
    if not found:
        raise SystemExit(f"{address} has no file of {name} {version} with a hash. Ask another index.")
    return f"{name}=={version}" + "".join(f" \\\n    --hash=sha256:{digest}" for digest in found) + "\n"
