"""Every text, list and map that a request may hold has a bound, in the table of routes: a new field enters by itself.

T9: a bound is known before anything is walked. Fields without one of their own are listed with what bounds them.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import msgspec
from msgspec import inspect

from windlass.server.route import MIB
from windlass.server.routes import ROUTES

STORED = "any JSON of 256 KiB and 64 levels at most: check_json of queue/newjob.py refuses more"
PATTERN = "its pattern takes nothing longer"
LARGEST_LIST = 10_000
LARGEST_TEXT = 65_536
UNBOUNDED: dict[str, str] = {
    **dict.fromkeys(("JobRequest.payload", "JobRequest.headers", "RetryRequest.payload", "RunRequest.payload"), STORED),
    **dict.fromkeys(("ScheduleRequest.payload", "ScheduleRequest.headers", "DeadRetryRequest.payload"), STORED),
    **dict.fromkeys(("ScheduleReplacement.payload", "ScheduleReplacement.headers"), STORED),
    **dict.fromkeys(("SchedulePatch.payload", "SchedulePatch.headers", "TaskDefaults.headers"), STORED),
    **dict.fromkeys(("CompleteRequest.result", "CompleteEntry.result"), STORED),
    **dict.fromkeys(("JobBeatRequest.progress", "HeldJob.progress", "Note.progress"), STORED),
    **dict.fromkeys(("JobBeatRequest.checkpoint", "Note.checkpoint"), STORED),
    **dict.fromkeys(("ReleaseRequest.checkpoint", "ReleaseEntry.checkpoint"), STORED),
    **dict.fromkeys(("SnoozeRequest.checkpoint", "SnoozeEntry.checkpoint"), STORED),
    **dict.fromkeys(("JobsQuery.id_end", "AttemptsQuery.outcome"), PATTERN),
}
"""`Struct.field`: what bounds it, in place of a length of its own."""


def unbounded(struct: type[msgspec.Struct]) -> set[str]:
    """Return the fields of a struct, and of those inside it, that may be of any length."""
    found: set[str] = set()
    seen: set[type] = set()

    def look(described: inspect.StructType) -> None:
        if described.cls in seen:
            return
        seen.add(described.cls)
        for field in described.fields:
            for kind in _inside(field.type):
                if isinstance(kind, inspect.StructType):
                    look(kind)
                elif not _is_bounded(kind):
                    found.add(f"{described.cls.__name__}.{field.encode_name}")

    described = inspect.type_info(struct)
    assert isinstance(described, inspect.StructType)
    look(described)
    return found


def _inside(kind: Any) -> Iterator[inspect.Type]:
    """Return a type and all that it is made of."""
    match kind:
        case inspect.Metadata():
            yield from _inside(kind.type)
            return
        case inspect.UnionType():
            for inner in kind.types:
                yield from _inside(inner)
            return
        case inspect.DictType():
            yield from _inside(kind.key_type)
            yield from _inside(kind.value_type)
        case inspect.VarTupleType() | inspect.ListType() | inspect.SetType() | inspect.FrozenSetType():
            yield from _inside(kind.item_type)
    yield kind


def _is_bounded(kind: inspect.Type) -> bool:
    match kind:
        case inspect.StrType() | inspect.BytesType():
            return kind.max_length is not None and kind.max_length <= LARGEST_TEXT
        case inspect.DictType() | inspect.VarTupleType() | inspect.ListType() | inspect.SetType():
            return kind.max_length is not None and kind.max_length <= LARGEST_LIST
        case inspect.FrozenSetType():
            return kind.max_length is not None and kind.max_length <= LARGEST_LIST
        case inspect.RawType() | inspect.AnyType():
            return False
    return True


def test_rel_t9_every_field_of_a_body_has_a_bound() -> None:
    """A text, list or map has a largest length, or is listed with its reason."""
    found = {name for route in ROUTES if route.body is not None for name in unbounded(route.body)}

    assert {name for name in UNBOUNDED if "Query." not in name} == found


def test_rel_t9_every_body_has_a_bound_in_bytes() -> None:
    """1 MiB, and 8 MiB for the routes that take lists of jobs, reports, schedules and leases."""
    large = {route.name for route in ROUTES if route.body_bytes > MIB}

    assert {8 * MIB, MIB} == {route.body_bytes for route in ROUTES}
    assert large == {
        "POST /jobs/batch",
        "POST /jobs/report",
        "POST /schedules/batch",
        "POST /schedules/declared",
        "POST /workers/heartbeat",
    }


def test_rel_t9_every_field_of_a_query_has_a_bound() -> None:
    """The head of a request is small, and each field in it has a largest length all the same."""
    found = {name for route in ROUTES if route.query is not None for name in unbounded(route.query)}

    assert {name for name in UNBOUNDED if "Query." in name} == found
