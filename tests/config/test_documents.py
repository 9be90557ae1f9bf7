"""The shipped file, the document and the settings say the same."""

from __future__ import annotations

import subprocess
import sys
import tomllib
import zipfile
from pathlib import Path

from tests.config.documents import DOCUMENT, document, events, sentence, shipped, tables
from tests.rules.source import REPOSITORY
from windlass.config.keys import KEYS, OLD_VARIABLES, SAME, SHORT_VARIABLES
from windlass.config.load import DEFAULT_FILE


def test_every_setting_has_a_sentence() -> None:
    """Under each setting stands who changes it and why, in one sentence."""
    assert [] == [name for name, key in KEYS.items() if not sentence(key).endswith(".")]


def test_the_shipped_file_has_every_setting() -> None:
    """default.toml has each setting with its sentence and default; what is not set stands as a comment."""
    assert shipped() == DEFAULT_FILE.read_text(encoding="utf-8")
    assert tomllib.loads(shipped())


def test_the_document_has_every_setting_and_event() -> None:
    """The tables of docs/configuration.md follow from settings and events, and every other name is there."""
    text = DOCUMENT.read_text(encoding="utf-8")

    assert document(text) == text
    assert tables() in text
    assert events() in text
    assert [] == [name for name in (*OLD_VARIABLES, *SAME, *SHORT_VARIABLES) if f"`{name}`" not in text]


def test_the_wheel_has_the_shipped_file(tmp_path: Path) -> None:
    """An installed Windlass reads its defaults from a file of its own package."""
    build = "import sys, hatchling.build; hatchling.build.build_wheel(sys.argv[1])"

    subprocess.run([sys.executable, "-c", build, str(tmp_path)], cwd=REPOSITORY, check=True, capture_output=True)

    (wheel,) = tmp_path.glob("*.whl")
    assert "windlass/config/default.toml" in zipfile.ZipFile(wheel).namelist()
