"""The audit: which vulnerabilities are known of the locked versions. pip-audit asks, in an environment of its own."""

from __future__ import annotations

import json
import subprocess
from pathlib import Path

from tests.packages.lock import REPOSITORY

FOUND, NOT_ASKED = 1, 2


def audit(program: Path) -> int:
    """Tell what is known of each locked package; return 0 for nothing, 1 for something, 2 if nobody could be asked."""
    files = [str(REPOSITORY / f"requirements{end}.txt") for end in ("", "-dev", "-audit")]
    command = [str(program), "--disable-pip", "--require-hashes", "--progress-spinner", "off", "--format", "json"]
    asked = subprocess.run(
        [*command, *(part for file in files for part in ("-r", file))], capture_output=True, text=True, check=False
    )
    code, text = verdict(asked.stdout, asked.stderr)
    print(text)
    return code


def verdict(stdout: str, stderr: str) -> tuple[int, str]:
    """Return the exit code and what is to be told."""
    try:
        packages = json.loads(stdout)["dependencies"]
    except (ValueError, KeyError, TypeError):
        why = (stderr.strip().splitlines() or ["it says nothing"])[-1]
        return NOT_ASKED, f"Nothing was checked: no audit database can be reached ({why[:200]}). Try again elsewhere."
    known = [
        f"{package['name']} {package['version']}: {flaw['id']}, mended in {', '.join(flaw['fix_versions']) or 'none'}"
        for package in packages
        for flaw in package.get("vulns", [])
    ]
    skipped = [package for package in packages if "skip_reason" in package]
    if known:
        return FOUND, "\n".join(known)
    if skipped:
        why = f"{len(skipped)} of {len(packages)} packages, such as {skipped[0]['name']}: {skipped[0]['skip_reason']}"
        return NOT_ASKED, f"Nothing is known of {why[:200]}. Ask another audit database."
    return 0, f"No vulnerability is known of {len(packages)} packages."
