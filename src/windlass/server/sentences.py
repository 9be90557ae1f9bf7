"""What stands in the source under the fields of a struct, so that the document says it too.

Python keeps the docstring of a class and not those of its fields; they are read once, by module, where the document is
made (openapi.py).
"""

from __future__ import annotations

import ast
import inspect
import sys
from collections.abc import Mapping
from functools import cache
from itertools import pairwise
from typing import Any

import msgspec


def sentences(struct: type[msgspec.Struct]) -> dict[str, str]:
    """Return what is said of the fields of a struct, its own and those it has from others, as they are on the wire."""
    said: dict[str, str] = {}
    for base in reversed(struct.__mro__):
        said |= _of_module(base.__module__).get(base.__qualname__, {})
    names = zip(struct.__struct_fields__, struct.__struct_encode_fields__, strict=True)
    return {shown: said[field] for field, shown in names if field in said}


@cache
def _of_module(name: str) -> Mapping[str, dict[str, str]]:
    if not name.startswith("windlass."):
        return {}
    tree = ast.parse(inspect.getsource(sys.modules[name]))
    return {node.name: dict(_of_class(node)) for node in tree.body if isinstance(node, ast.ClassDef)}


def _of_class(node: ast.ClassDef) -> list[tuple[str, str]]:
    found: list[tuple[str, str]] = []
    for field, text in pairwise(node.body):
        pair: tuple[Any, Any] = field, text
        match pair:
            case ast.AnnAssign(target=ast.Name(id=name)), ast.Expr(value=ast.Constant(value=str() as said)):
                found.append((name, said))
    return found
