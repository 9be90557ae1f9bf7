"""The shipped file and the tables of docs/configuration.md, as they follow from the settings and the log's events.

`python -m tests.config.documents` writes both; the tests only compare.
"""

from __future__ import annotations

import ast
import json
import logging
from functools import cache
from pathlib import Path

from tests.rules.source import REPOSITORY, tree_of
from windlass.config.check import DERIVED
from windlass.config.keys import KEYS, Key, expected
from windlass.config.load import DEFAULT_FILE
from windlass.config.settings import Settings
from windlass.config.workkinds import FIELD_DEFAULTS, FIELD_TYPES, FIELDS, WorkKind
from windlass.log import EVENTS

KINDS_FILE = REPOSITORY / "src" / "windlass" / "config" / "workkinds.py"
SETTINGS_FILE = REPOSITORY / "src" / "windlass" / "config" / "settings.py"
DOCUMENT = REPOSITORY / "docs" / "configuration.md"
WRITTEN_BY = "written by python -m tests.config.documents"

HEAD = """\
# Every setting of Windlass, with its default and who changes it, and why.
# This file is shipped and read first. Write what you change into windlass.toml, in the same form;
# WINDLASS_SECTION_NAME in the environment comes before it, a flag before that.
# `windlass config show` tells every value and where it came from.
"""


@cache
def sentences(path: Path = SETTINGS_FILE) -> dict[str, str]:
    """Return the sentence under each setting, by class and name: `Server.port`."""
    found = {}
    for node in tree_of(path).body:
        if isinstance(node, ast.ClassDef):
            for field, text in zip(node.body, node.body[1:], strict=False):
                if isinstance(field, ast.AnnAssign) and isinstance(text, ast.Expr):
                    assert isinstance(field.target, ast.Name)
                    found[f"{node.name}.{field.target.id}"] = str(ast.literal_eval(text.value))
    return found


def sentence(key: Key) -> str:
    """Return the sentence of a key; a KeyError if it has none."""
    section, _, field = key.name.rpartition(".")
    owner = type(getattr(Settings(), section)).__name__ if section else "Settings"
    return sentences()[f"{owner}.{field}"]


def sections() -> dict[str, list[Key]]:
    """Return the keys by section; those of none stand under an empty name."""
    found: dict[str, list[Key]] = {}
    for key in KEYS.values():
        found.setdefault(key.name.rpartition(".")[0], []).append(key)
    return found


def written(value: object) -> str:
    """Return the value as TOML writes it."""
    if isinstance(value, tuple):
        return f"[{', '.join(map(written, value))}]"
    if isinstance(value, float) and value.is_integer():
        return str(int(value))
    return json.dumps(value)


def about(section: str) -> str:
    """Return what a section is for."""
    return str(type(getattr(Settings(), section)).__doc__)


def shipped() -> str:
    """Return the text of `default.toml`."""
    parts = [HEAD]
    for section, keys in sections().items():
        parts.append(f"\n[{section}]  # {about(section)}\n" if section else "")
        for key in keys:
            value = "" if key.default is None else f" {written(key.default)}"
            mark = "# " if key.default is None or key.name in DERIVED else ""
            parts.append(f"\n# {sentence(key)}\n{mark}{key.name.rpartition('.')[2]} ={value}\n")
    return "".join([*parts, *shipped_kinds()])


def shipped_kinds() -> list[str]:
    """Return what `default.toml` says of work kinds: none is shipped."""
    parts = [f"\n# {WorkKind.__doc__}\n# [work_kinds.NAME]\n"]
    for field, name in FIELDS.items():
        what = sentences(KINDS_FILE)[f"WorkKind.{name}"]
        parts.append(f"\n# {what}\n# {field} = {written(FIELD_DEFAULTS[field])}\n")
    return parts


def tables() -> str:
    """Return the tables of the document."""
    parts = []
    for section, keys in sections().items():
        parts.append(f"### {section}\n\n{about(section)}\n\n" if section else "### No section\n\n")
        parts.append("| key | default | takes | who changes it, and why |\n|---|---|---|---|\n")
        for key in keys:
            default = "not set" if key.default is None else f"`{written(key.default)}`"
            parts.append(f"| `{key.name}` | {default} | {expected(key)} | {sentence(key)} |\n")
        parts.append("\n")
    return "".join([*parts, *kind_tables()])


def kind_tables() -> list[str]:
    """Return the table of work kinds: their fields."""
    parts = [f"### work_kinds\n\n{WorkKind.__doc__}\n\n"]
    parts.append("| key | default | takes | what it is |\n|---|---|---|---|\n")
    for field, name in FIELDS.items():
        key = Key(f"work_kinds.NAME.{field}", FIELD_TYPES[field], FIELD_DEFAULTS[field])
        what = sentences(KINDS_FILE)[f"WorkKind.{name}"]
        parts.append(f"| `{key.name}` | `{written(key.default)}` | {expected(key)} | {what} |\n")
    return [*parts, "\n"]


def events() -> str:
    """Return the table of what is logged."""
    rows = [
        f"| `{name}` | {logging.getLevelName(level).lower()} | {text} |\n" for name, (level, text) in EVENTS.items()
    ]
    return "".join(["| event | level | what happened, and what the line tells |\n|---|---|---|\n", *rows, "\n"])


def document(text: str) -> str:
    """Return the document with its tables as they follow from the source."""
    for name, table in (("settings", tables()), ("events", events())):
        begin, end = f"<!-- {name}: {WRITTEN_BY} -->\n", f"<!-- end of {name} -->\n"
        head, _, rest = text.partition(begin)
        text = f"{head}{begin}\n{table}{end}{rest.partition(end)[2]}"
    return text


if __name__ == "__main__":
    DEFAULT_FILE.write_text(shipped(), encoding="utf-8")
    DOCUMENT.write_text(document(DOCUMENT.read_text(encoding="utf-8")), encoding="utf-8")
