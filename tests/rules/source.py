"""Files of the repository, as the rules read them: as text and as syntax trees, never imported."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cache
from pathlib import Path

REPOSITORY = Path(__file__).parents[2]

Named = ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef
Holder = ast.stmt | ast.ExceptHandler | ast.match_case


@dataclass(frozen=True)
class Definition:
    """A class or a function; its name is dotted."""

    name: str
    is_function: bool
    lines: int
    documented: bool


@dataclass(frozen=True)
class Outline:
    """What most rules ask of a file, without its syntax tree: the trees of all files would be millions of objects."""

    documented: bool
    definitions: list[Definition]
    imports: list[ast.Import | ast.ImportFrom]

    def imported(self, package: str) -> Iterator[tuple[int, str]]:
        """Yield the line and full name of everything imported; `package` is where relative imports start."""
        for node in self.imports:
            if isinstance(node, ast.Import):
                for alias in node.names:
                    yield node.lineno, alias.name
            else:
                base = ".".join(package.split(".")[: len(package.split(".")) - node.level + 1]) if node.level else ""
                module = ".".join(part for part in (base, node.module) if part)
                for alias in node.names:
                    yield node.lineno, f"{module}.{alias.name}"


def files(root: Path, *patterns: str) -> list[Path]:
    """Return the files below `root` that match, in order; an empty list where nothing is."""
    found = {path for pattern in patterns for path in root.glob(pattern) if path.is_file()}
    return sorted(path for path in found if "__pycache__" not in path.parts)


def tree_of(path: Path) -> ast.Module:
    """Return the syntax tree of a Python file."""
    return ast.parse(path.read_text(encoding="utf-8"), str(path))


@cache
def outline_of(path: Path) -> Outline:
    """Return the outline of a Python file."""
    tree = tree_of(path)
    inside = list(statements(tree))
    definitions = [
        Definition(
            name,
            not isinstance(node, ast.ClassDef),
            (node.end_lineno or node.lineno) - node.lineno + 1,
            bool(ast.get_docstring(node)),
        )
        for name, node in inside
        if isinstance(node, Named)
    ]
    imports = [node for _, node in inside if isinstance(node, ast.Import | ast.ImportFrom)]
    return Outline(bool(ast.get_docstring(tree)), definitions, imports)


def statements(node: ast.AST, prefix: str = "") -> Iterator[tuple[str, ast.AST]]:
    """Yield every statement below `node` with the dotted name of the class or function that it is or stands in."""
    for child in ast.iter_child_nodes(node):
        if isinstance(child, Holder):
            name = f"{prefix}.{child.name}".lstrip(".") if isinstance(child, Named) else prefix
            yield name, child
            yield from statements(child, name)


def dotted(node: ast.AST) -> str:
    """Return `a.b.c` for an attribute of an attribute of a name; an empty string for anything else."""
    if isinstance(node, ast.Name):
        return node.id
    if isinstance(node, ast.Attribute) and dotted(node.value):
        return f"{dotted(node.value)}.{node.attr}"
    return ""


def texts(tree: ast.Module) -> Iterator[tuple[int, str]]:
    """Yield the line and text of every string that is a value, docstrings left out."""
    prose = {id(node.value) for node in ast.walk(tree) if isinstance(node, ast.Expr)}
    for node in ast.walk(tree):
        if isinstance(node, ast.Constant) and isinstance(node.value, str) and id(node) not in prose:
            yield node.lineno, node.value


def words(name: str) -> list[str]:
    """Return the words of a name, in lower case: `JobQueue_two` has job, queue and two."""
    return [word.lower() for word in re.findall(r"[A-Z]+(?![a-z])|[A-Z]?[a-z]+", name)]
