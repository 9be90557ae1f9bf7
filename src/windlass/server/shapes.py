"""The shape of a struct: what is known of its fields before a body is decoded into it, and types that bound a list.

Everything here depends on types alone, and is made once for each.
"""

from __future__ import annotations

from functools import cache, reduce
from operator import or_
from typing import Annotated, Any, get_args, get_origin, get_type_hints

import msgspec
from msgspec import UNSET, Raw

from windlass.wire.base import Body

MOST = 1000
"""Entries of a list or an object whose type names no bound of its own."""


class Shape(msgspec.Struct, frozen=True):
    """What is known of the fields of a struct."""

    names: frozenset[str]
    """All its fields, and the one that tells its kind."""
    bodies: dict[str, tuple[type[Body], ...]]
    """Fields that hold a body of their own, or many; and what it can be."""
    lists: dict[str, int]
    """Fields that hold a list, and how many entries it may have."""
    entries: dict[str, int]
    """Fields that hold entries by names that are the caller's, and how many."""
    whole: frozenset[str]
    """Fields that take whole numbers."""


@cache
def shape_of(struct: type[msgspec.Struct]) -> Shape:
    """Return the shape of a struct."""
    bodies: dict[str, tuple[type[Body], ...]] = {}
    lists: dict[str, int] = {}
    entries: dict[str, int] = {}
    whole = set()
    for field, hint in get_type_hints(struct, include_extras=True).items():
        waiting = [(hint, MOST)]
        while waiting:
            part, most = waiting.pop(0)
            origin = get_origin(part)
            if origin is Annotated:
                bounds = (note.max_length for note in part.__metadata__ if isinstance(note, msgspec.Meta))
                waiting.append((get_args(part)[0], next((bound for bound in bounds if bound is not None), MOST)))
                continue
            waiting += ((inner, MOST) for inner in get_args(part))
            if origin in (list, tuple, frozenset):
                lists.setdefault(field, most)
            elif origin is dict:
                entries.setdefault(field, most)
            elif part is int:
                whole.add(field)
            elif isinstance(part, type) and origin is None and issubclass(part, Body):
                bodies[field] = (*bodies.get(field, ()), part)
    tag_field = struct.__struct_config__.tag_field
    names = frozenset(struct.__struct_fields__) | ({tag_field} if tag_field is not None else set())
    return Shape(names, bodies, lists, entries, frozenset(whole))


@cache
def decoder_of(*structs: type[Body]) -> msgspec.json.Decoder[Any]:
    """Return the decoder of a body that is one of these."""
    return msgspec.json.Decoder(reduce(or_, structs))


@cache
def tag_type(field: str) -> type[Any]:
    """Return a struct that reads of an object only its kind, as `tag`."""
    return msgspec.defstruct("Tagged", [("tag", Any, None)], rename={"tag": field})


@cache
def array_type(most: int) -> type[Any]:
    """Return the type of a list that ends the decoding at its first entry beyond `most`; a list type does not."""
    fields = [(f"item_{number}", Raw | msgspec.UnsetType, UNSET) for number in range(most)]
    return msgspec.defstruct("Items", fields, array_like=True, forbid_unknown_fields=True)
