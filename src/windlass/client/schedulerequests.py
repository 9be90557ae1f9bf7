"""The requests about schedules, built without asking anybody. Pure.

Like requests.py, which has those about jobs. A schedule is named by its id, or by its name where that is all one has.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import datetime
from typing import Any
from urllib.parse import quote
from uuid import UUID

import msgspec

from windlass.client.requests import Request
from windlass.wire import jobs
from windlass.wire import schedules as wire
from windlass.wire.base import MAX_PAGE

Ref = UUID | str
"""A schedule by its id or by its name."""


class Known(msgspec.Struct, frozen=True, kw_only=True):
    """What of a schedule its handle keeps."""

    id: UUID
    name: str
    next_run_at: datetime | None


def create(fields: Mapping[str, Any], *, replace_existing: bool) -> Request:
    """Ask to store a schedule."""
    body = {**fields, "replace_existing": replace_existing}
    # Said twice it would meet itself, unless it takes the place of what is there.
    return Request(method="POST", path="/schedules", body=_json(body), answer=Known, repeatable=replace_existing)


def try_create(fields: Mapping[str, Any], *, replace_existing: bool) -> Request:
    """Ask what storing a schedule would change."""
    body = {**fields, "replace_existing": replace_existing, "dry_run": True}
    return Request(method="POST", path="/schedules", body=_json(body), answer=wire.ScheduleChange)


def declare(
    owner: str,
    schedules: Sequence[Mapping[str, Any]],
    *,
    keep: Sequence[str] = (),
    skip_refused: bool = False,
    dry_run: bool = False,
) -> Request:
    """Ask that an application has these schedules, those to keep, and no others of its own."""
    body = {"owner": owner, "schedules": schedules, "keep": keep, "skip_refused": skip_refused, "dry_run": dry_run}
    return Request(method="POST", path="/schedules/declared", body=_json(body), answer=wire.Declared)


def get(ref: Ref) -> Request:
    """Ask for a schedule."""
    return Request(method="GET", path=_path(ref), answer=wire.Schedule)


def find(wanted: Mapping[str, Any], *, cursor: str | None) -> Request:
    """Ask for a page of schedules by name."""
    query: dict[str, str | int | float] = {
        name: str(value).lower() if isinstance(value, bool) else value
        for name, value in {**wanted, "cursor": cursor}.items()
        if value is not None
    }
    return Request(method="GET", path="/schedules", query={**query, "limit": MAX_PAGE}, answer=wire.ScheduleList)


def change(ref: Ref, fields: Mapping[str, Any], *, reason: str | None) -> Request:
    """Ask to change a schedule."""
    return Request(method="PATCH", path=_path(ref), body=_because(reason, **fields), answer=Known)


def try_change(ref: Ref, fields: Mapping[str, Any]) -> Request:
    """Ask what a change of a schedule would change."""
    return Request(method="PATCH", path=_path(ref), body=_json({**fields, "dry_run": True}), answer=wire.ScheduleChange)


def pause(ref: Ref, *, reason: str | None, until: datetime | float | None) -> Request:
    """Ask that a schedule makes no jobs: until it is resumed, until then, or for so many seconds."""
    said = {} if until is None else {"until" if isinstance(until, datetime) else "duration": until}
    return Request(method="POST", path=_path(ref, "pause"), body=_because(reason, **said), answer=Known)


def resume(ref: Ref, *, reason: str | None) -> Request:
    """Ask that a paused schedule goes on."""
    return Request(method="POST", path=_path(ref, "resume"), body=_because(reason), answer=Known)


def run(ref: Ref, payload: bytes | None, *, reason: str | None) -> Request:
    """Ask for a job now, beside the series."""
    said = {} if payload is None else {"payload": msgspec.Raw(payload)}
    body = _because(reason, **said)
    return Request(method="POST", path=_path(ref, "run"), body=body, answer=jobs.Submitted, repeatable=False)


def delete(ref: Ref, *, purge: bool, reason: str | None) -> Request:
    """Ask to delete a schedule, with `purge` its history too."""
    query = {**({"purge": "true"} if purge else {}), **({} if reason is None else {"reason": reason})}
    return Request(method="DELETE", path=_path(ref), query=query, repeatable=False)


def preview(ref: Ref, count: int, *, after: datetime | None) -> Request:
    """Ask for the next slots of a schedule."""
    place = {} if after is None else {"after": after.isoformat()}
    return Request(method="GET", path=_path(ref, "preview"), query={"count": count, **place}, answer=wire.Preview)


def preview_of(fields: Mapping[str, Any]) -> Request:
    """Ask for the next slots of a trigger that is not stored."""
    return Request(method="POST", path="/schedules/preview", body=_json(fields), answer=wire.Preview)


def runs(ref: Ref, wanted: Mapping[str, Any], *, limit: int, cursor: datetime | None) -> Request:
    """Ask for a page of the slots of a schedule, newest first."""
    query: dict[str, str | int | float] = {
        name: value.isoformat() if isinstance(value, datetime) else value
        for name, value in {**wanted, "cursor": cursor}.items()
        if value is not None
    }
    query["limit"] = min(limit, MAX_PAGE)
    return Request(method="GET", path=_path(ref, "runs"), query=query, answer=wire.RunPage)


def backfill(ref: Ref, fields: Mapping[str, Any], *, reason: str | None) -> Request:
    """Ask to run the slots of a past range."""
    body = _because(reason, **fields)
    return Request(method="POST", path=_path(ref, "backfill"), body=body, answer=wire.Backfill, repeatable=False)


def get_backfill(backfill_id: UUID) -> Request:
    """Ask how far a backfill is."""
    return Request(method="GET", path=f"/backfills/{backfill_id}", answer=wire.Backfill)


def stop_backfill(backfill_id: UUID, *, reason: str | None) -> Request:
    """Ask that a backfill makes no more jobs."""
    path = f"/backfills/{backfill_id}/stop"
    return Request(method="POST", path=path, body=_because(reason), answer=wire.Backfill)


def _path(ref: Ref, *more: str) -> str:
    return "/".join(["/schedules", quote(str(ref), safe=""), *more])


def _because(reason: str | None, **said: Any) -> bytes:
    return _json(said if reason is None else {**said, "reason": reason})


_json = msgspec.json.encode
