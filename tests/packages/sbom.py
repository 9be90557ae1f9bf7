"""The bill of materials, as CycloneDX JSON: what is installed, of which version and licence, and what needs what."""

from __future__ import annotations

import json
import re
from collections.abc import Iterable
from importlib.metadata import Distribution, distributions
from pathlib import Path
from typing import Any

from tests.packages.lock import REPOSITORY, normal

_NAME = re.compile(r"[A-Za-z0-9._-]+")


def bill(installed: Iterable[Distribution], *, required: set[str]) -> dict[str, Any]:
    """Return the bill; packages that are not required are tools of development. One installation has one bill."""
    by_name = {normal(found.metadata["Name"]): found for found in installed}
    own = by_name.pop("windlass")
    parts = {name: _component(name, by_name[name], is_required=name in required) for name in sorted(by_name)}
    return {
        "bomFormat": "CycloneDX",
        "specVersion": "1.5",
        "version": 1,
        "metadata": {"component": {"type": "application", **_identity("windlass", own), "licenses": _licences(own)}},
        "components": list(parts.values()),
        "dependencies": [
            {"ref": _reference(name, found), "dependsOn": _needs(found, by_name)}
            for name, found in [("windlass", own), *sorted(by_name.items())]
        ],
    }


def locked(file: Path) -> set[str]:
    """Return the names in a requirements file."""
    return set(re.findall(r"^([a-z0-9-]+)==", file.read_text(encoding="utf-8"), re.MULTILINE))


def write(path: Path) -> None:
    """Write the bill of this environment."""
    made = bill(distributions(), required=locked(REPOSITORY / "requirements.txt"))
    path.write_text(json.dumps(made, indent=2) + "\n", encoding="utf-8")


def _component(name: str, found: Distribution, *, is_required: bool) -> dict[str, Any]:
    scope = "required" if is_required else "excluded"
    return {"type": "library", **_identity(name, found), "scope": scope, "licenses": _licences(found)}


def _identity(name: str, found: Distribution) -> dict[str, str]:
    reference = _reference(name, found)
    return {"bom-ref": reference, "name": name, "version": found.version, "purl": reference}


def _reference(name: str, found: Distribution) -> str:
    return f"pkg:pypi/{name}@{found.version}"


def _licences(found: Distribution) -> list[dict[str, Any]]:
    [said, *_] = [*_values(found, "License-Expression"), *_values(found, "License"), ""]
    said = said.partition("\n")[0]
    classes = [line.rpartition(" :: ")[2] for line in _values(found, "Classifier") if "License ::" in line]
    return [{"license": {"name": name}} for name in ([said] if said else classes)]


def _values(found: Distribution, field: str) -> list[str]:
    return found.metadata.get_all(field) or []


def _needs(found: Distribution, others: dict[str, Distribution]) -> list[str]:
    named = {normal(_NAME.match(line)[0]) for line in found.requires or [] if "extra ==" not in line}  # type: ignore[index]
    return [_reference(name, others[name]) for name in sorted(named & others.keys())]
