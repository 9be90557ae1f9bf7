"""Files of the repository, as the rules read them: as text and as syntax trees, never imported."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from functools import cache
from pathlib import Path

REPOSITORY = Path(__file__).parents[2]

Function = ast.FunctionDef | ast.AsyncFunctionDef
Named = Function | ast.ClassDef


def files(root: Path, *patterns: str) -> list[Path]:
    """Return the files below `root` that match, in order; an empty list where nothing is."""
    found = {path for pattern in patterns for path in root.glob(pattern) if path.is_file()}
    return sorted(path for path in found if "__pycache__" not in path.parts)


@cache
def tree_of(path: Path) -> ast.Module:
    """Return the syntax tree of a Python file."""
    return ast.parse(path.read_text(encoding="utf-8"), str(path))


def definitions(node: ast.AST, prefix: str = "") -> Iterator[tuple[str, Named]]:
    """Yield every class and function below `node` with its dotted name."""
    for child in ast.iter_child_nodes(node):
        name = prefix
        if isinstance(child, Named):
            name = f"{prefix}.{child.name}".lstrip(".")
            yield name, child
        yield from definitions(child, name)


def dotted(node: ast.AST) -> str:
    """Return `a.b.c` for an attribute of an attribute of a name; an empty string for anything else."""
    if isinstance(node, ast.Name):
        return node.id
    if isinstance(node, ast.Attribute) and dotted(node.value):
        return f"{dotted(node.value)}.{node.attr}"
    return ""


def imports(tree: ast.Module, package: str) -> Iterator[tuple[int, str]]:
    """Yield the line and full name of everything imported; `package` is where relative imports start."""
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            for alias in node.names:
                yield node.lineno, alias.name
        elif isinstance(node, ast.ImportFrom):
            base = ".".join(package.split(".")[: len(package.split(".")) - node.level + 1]) if node.level else ""
            module = ".".join(part for part in (base, node.module) if part)
            for alias in node.names:
                yield node.lineno, f"{module}.{alias.name}"


def texts(tree: ast.Module) -> Iterator[tuple[int, str]]:
    """Yield the line and text of every string that is a value, docstrings left out."""
    prose = {id(node.value) for node in ast.walk(tree) if isinstance(node, ast.Expr)}
    for node in ast.walk(tree):
        if isinstance(node, ast.Constant) and isinstance(node.value, str) and id(node) not in prose:
            yield node.lineno, node.value


def words(name: str) -> list[str]:
    """Return the words of a name, in lower case: `JobQueue_two` has job, queue and two."""
    return [word.lower() for word in re.findall(r"[A-Z]+(?![a-z])|[A-Z]?[a-z]+", name)]
