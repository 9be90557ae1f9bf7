"""T19: what make installs is locked by version and hash, and can be listed and audited."""

from __future__ import annotations

import json
import re
import tomllib
from importlib.metadata import distributions
from typing import Any

import pytest

from tests.packages.audit import verdict
from tests.packages.lock import BUILD, REPOSITORY, hashes, normal
from tests.packages.sbom import bill, locked

pytestmark = pytest.mark.one_kind
FILES = [REPOSITORY / f"requirements{end}.txt" for end in ("", "-dev", "-audit")]


def test_rel_t19_every_package_is_locked_by_hash() -> None:
    """Each package of each file has one version and hashes; no file names an index."""
    for file in FILES:
        text = file.read_text(encoding="utf-8")
        entry = r"[a-z0-9-]+==\S+( \\\n    --hash=sha256:[0-9a-f]{64})+\n"
        assert re.fullmatch(rf"#[^\n]*\n({entry})+", text), file.name
        assert "://" not in text


def test_rel_t19_what_the_project_asks_for_is_locked() -> None:
    """A dependency that was added and not locked would be missing after make install."""
    project = tomllib.loads((REPOSITORY / "pyproject.toml").read_text(encoding="utf-8"))["project"]

    def names(requirements: list[str]) -> set[str]:
        return {normal(re.split(r"[\[<>=; ]", line)[0]) for line in requirements}

    needed, tools, _ = map(locked, FILES)
    assert set() == names([*project["dependencies"], *BUILD]) - needed
    assert set() == names(project["optional-dependencies"]["dev"]) - needed - tools


def test_hashes_are_of_one_version() -> None:
    """Every file of the version counts, wheel or source, and none of a version that begins alike."""
    files = ["a_b-1.0-py3-none-any.whl", "a_b-1.0.tar.gz", "a_b-1.0.1-py3-none-any.whl", "a_b-1.0.post1.tar.gz"]
    page = "".join(f'<a href="x/{file}#sha256={number:064x}">{file}</a>' for number, file in enumerate(files))

    assert [f"{0:064x}", f"{1:064x}"] == hashes(page, "1.0")


def test_rel_t19_the_bill_of_materials_names_everything() -> None:
    """Each installed package stands in it once, with version and purl; those that Windlass needs are required."""
    made = bill(distributions(), required=locked(FILES[0]))

    named = {part["name"]: part for part in made["components"]}
    assert len(named) == len(made["components"])
    assert ("required", "excluded") == (named["asyncpg"]["scope"], named["pytest"]["scope"])
    assert f"pkg:pypi/asyncpg@{named['asyncpg']['version']}" == named["asyncpg"]["purl"]
    [own] = [entry for entry in made["dependencies"] if entry["ref"].startswith("pkg:pypi/windlass@")]
    assert named["asyncpg"]["purl"] in own["dependsOn"]
    assert json.dumps(made) == json.dumps(bill(distributions(), required=locked(FILES[0])))


def test_rel_t19_an_audit_says_what_it_knows() -> None:
    """0 for nothing known, 1 with each flaw and what mends it, 2 in one line where not all could be asked about."""
    flaw = {"id": "PYSEC-1", "fix_versions": ["1.1"]}
    packages: list[dict[str, Any]] = [{"name": name, "version": "1.0", "vulns": []} for name in "ab"]
    clean = json.dumps({"dependencies": packages})
    packages[1]["vulns"] = [flaw]
    flawed = json.dumps({"dependencies": packages})
    skipped = json.dumps({"dependencies": [packages[0], {"name": "c", "skip_reason": "not found"}]})

    assert (2, "Nothing is known of 1 of 2 packages, such as c: not found. Ask another audit database.") == verdict(
        skipped, ""
    )
    assert (0, "No vulnerability is known of 2 packages.") == verdict(clean, "")
    assert (1, "b 1.0: PYSEC-1, mended in 1.1") == verdict(flawed, "Found 1 known vulnerability")
    code, told = verdict("", "Traceback …\nConnectionError: no route to the database\n")
    assert (2, 1) == (code, len(told.splitlines()))
    assert "no route to the database" in told
