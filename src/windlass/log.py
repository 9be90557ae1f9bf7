"""The log: one structured line per event, for people or as JSON, on top of the standard `logging`.

`event("job.lost", job=…, worker=…)` names what happened (EVENTS) and to whom; `bind` adds request and tenant to every
line within. What comes from outside cannot forge a line or steer a terminal, is cut where it is long, and is hidden
where its name says secret; payloads and results are never logged. A log that cannot be written stops nobody.
"""

from __future__ import annotations

import contextlib
import itertools
import json
import logging
import math
import os
import re
import sys
import traceback
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextvars import ContextVar
from datetime import UTC, datetime
from types import MappingProxyType
from typing import Any, Literal, TextIO
from uuid import UUID

from windlass.config.redact import HIDDEN, SECRET_NAMES, Redactor

DEBUG, INFO, WARNING, ERROR = logging.DEBUG, logging.INFO, logging.WARNING, logging.ERROR

EVENTS: Mapping[str, tuple[int, str]] = MappingProxyType(
    {
        "jobs.submitted": (INFO, "Jobs were accepted: how many, and into which queue."),
        "schedule.fired": (INFO, "Slots of schedules were decided: how many made a job, and how late the latest was."),
        "schedule.broken": (ERROR, "The times of a schedule cannot be computed; it is left out for a while: why."),
        "schedule.refused": (
            ERROR,
            "The database cannot take what a schedule makes; it is left out for a while: why.",
        ),
        "run.missing": (ERROR, "A run that was expected has not succeeded in time: its slot, and what was found."),
        "run.recovered": (INFO, "A run has succeeded after one was missing: its slot."),
        "backfill.ended": (INFO, "A backfill has ended: how many jobs it made, and how many slots had one."),
        "backfill.failed": (ERROR, "A backfill cannot go on, and is stopped: the error."),
        "schedules.declared": (INFO, "An application's schedules were made as it declares them: which ones changed."),
        "schedules.unheard": (WARNING, "No server took the schedules that an application declares; it is tried again."),
        "schedules.refused": (
            ERROR,
            "Schedules that an application declares were not accepted: which one, or all, and why.",
        ),
        "schedules.foreign": (WARNING, "An application declares no schedules, and others of its name are left: which."),
        "jobs.claimed": (INFO, "A worker was handed jobs: how many."),
        "job.pooled": (DEBUG, "A worker gave a job to its pool of threads."),
        "job.completed": (
            INFO,
            "A job succeeded: how long it waited from when it could be claimed, how long it ran, its metrics.",
        ),
        "job.failed": (WARNING, "An attempt failed: which one, and the error."),
        "job.lost": (WARNING, "A lease lapsed: its worker, and the worker's last heartbeat."),
        "job.retrying": (INFO, "A job runs again: which attempt, and after which delay."),
        "job.dead": (ERROR, "A job is out of attempts or not retryable: the reason."),
        "job.snoozed": (INFO, "A task put its job off: until when, and why."),
        "job.released": (INFO, "A worker gave a job back: why."),
        "attempt.ended": (
            INFO,
            "An attempt ended on this worker: its task, outcome and length, the trace of a failure.",
        ),
        "report.stale": (WARNING, "A report was refused because the lease is another's: its fence."),
        "job.waiting": (DEBUG, "A job waits for others: for how many."),
        "outbox.refused": (ERROR, "What an application said in its transaction cannot be done, and is set aside: why."),
        "outbox.put_off": (WARNING, "What an application said in its transaction cannot be done yet: why."),
        "history.cleaned": (
            INFO,
            "Old history was removed: how many rows, and how many partitions with about how many.",
        ),
        "queue.health": (INFO, "How many jobs wait, run and failed."),
        "queue.deep": (WARNING, "More jobs wait than `queue.depth_warning`: start more workers."),
        "worker.registered": (INFO, "A worker opened a session: its threads and version."),
        "worker.stopping": (INFO, "A worker claims no more: how many jobs it still runs."),
        "worker.stopped": (INFO, "A worker closed its session: how many jobs it gave back."),
        "worker.failed": (ERROR, "A part of a worker met an error, and goes on after a pause: which part."),
        "worker.lapsed": (WARNING, "A worker could not renew its lease in time: how many jobs go on, and are stopped."),
        "trail.refused": (WARNING, "Progress, a checkpoint or log lines of an attempt were not kept: why."),
        "report.dropped": (WARNING, "The end of an attempt was not told: why."),
        "worker.died": (WARNING, "A worker's process ended by itself: how, and how many jobs it held."),
        "worker.replaced": (WARNING, "A worker's process is started again: why, and after which pause."),
        "worker.stuck": (ERROR, "A worker's process cannot go on, and is replaced: why, and which job."),
        "worker.unheard": (WARNING, "A server did not take what a worker said, which says it again: the reason."),
        "worker.health": (WARNING, "/healthz fails, or is well again: the reasons."),
        "spot.notice": (WARNING, "The cloud takes this machine away: how many jobs it holds, and how long is left."),
        "spot.saved": (INFO, "The jobs of a machine that is taken away were reported or given back: how many."),
        "scale.unheard": (WARNING, "No server says how many workers there should be; the number stays: the reason."),
        "job.abandoned": (WARNING, "A body would not stop and was given up: its worker is to be replaced."),
        "cell.failed": (ERROR, "An isolated process could not be ended: the error."),
        "loop.failed": (ERROR, "Something stopped the loop of async tasks, which goes on: the error."),
        "duty.acquired": (INFO, "This server has a duty now: under which term."),
        "duty.lost": (WARNING, "This server has a duty no more: why. At info when it gave the duty up itself."),
        "duty.failed": (ERROR, "A round of a duty failed, and is tried again: the error."),
        "duties.failed": (WARNING, "Renewing or taking duties failed, and is tried again: the error."),
        "server.started": (INFO, "The server listens: where."),
        "server.stopping": (INFO, "The server takes no more requests: how many are under way."),
        "server.stopped": (INFO, "The server has ended."),
        "server.few_files": (WARNING, "The limit of open files allows fewer connections than asked: how many."),
        "server.certificate_read": (INFO, "The certificate was read anew, for new connections: its file."),
        "server.certificate_kept": (WARNING, "The new certificate cannot be used; the old one stays: the error."),
        "database.damaged": (ERROR, "A page of the SQLite file cannot be read: the file, and how to repair it."),
        "request.failed": (ERROR, "A request met an error that nobody foresaw: its id, which the caller has too."),
        "request.refused": (WARNING, "A request was answered 401, 403 or 429: from where, which key id."),
        "request.unserved": (
            WARNING,
            "The database could not serve a request: its id, which the caller has too, and what the database said.",
        ),
        "config.weak": (WARNING, "A setting is allowed but weak: which, and why."),
        "log.dropped": (WARNING, "Lines before this one could not be written: how many."),
        "log.other": (INFO, "A line of another library, with its logger and level."),
    }
)
"""What is logged, at which level, and what it says."""

MAX_VALUE = 1000
"""Characters shown of a value."""
MAX_READ = 4096
"""Characters of a value looked at: more than are shown, so that a secret is not cut in half and then not known."""
MAX_TRACE = 8000
MAX_ITEMS = 20
MAX_PIECES = 1000
"""Texts that are remembered as they stand in a line."""
NEVER = frozenset({"payload", "result", "args", "kwargs", "arguments", "body", "headers"})
"""Fields that may hold a user's data: hidden whatever the settings say."""

_LOGGER = logging.getLogger("windlass")
_LEVELS = {"debug": DEBUG, "info": INFO, "warning": WARNING, "error": ERROR}
_SHORT = {"WARNING": "WARN", "CRITICAL": "ERROR"}
_NOTHING: Mapping[str, Any] = MappingProxyType({})
_BOUND: ContextVar[Mapping[str, Any]] = ContextVar("windlass_log", default=_NOTHING)
_BARE = re.compile(r"[^\s\"'=\\]+")
_NAME = re.compile(r"[^A-Za-z0-9_.-]")
_RESERVED = frozenset({"time", "level", "event"})
_USUAL = Redactor()
_OWN_ATTRIBUTES = frozenset({*vars(logging.makeLogRecord({})), "message", "asctime", "taskName"})


class Line:
    """An event and its fields; as a text it is safe to show, in whatever handler it ends up."""

    def __init__(self, name: str, fields: Mapping[str, Any]) -> None:
        self.name = name
        self.fields = fields

    def shown(self, redactor: Redactor) -> dict[str, Any]:
        """Return the fields as they may be shown; absent ones are left out."""
        return {
            _NAME.sub("_", key)[:100]: HIDDEN if key in NEVER or redactor.hides(key) else _shown(value, redactor)
            for key, value in self.fields.items()
            if value is not None
        }

    def text(self, redactor: Redactor) -> str:
        """Return the line as people read it; a trace stands below, indented, so that it is no line of the log."""
        words, below = [_quoted(self.name)], []
        for key, value in self.shown(redactor).items():
            if isinstance(self.fields.get(key), Trace):
                below += ["    " + "".join(map(_visible, line)) for line in value.splitlines()]
            else:
                words.append(f"{key}={_quoted(value)}")
        return "\n".join([" ".join(words), *below])

    def __str__(self) -> str:
        return self.text(_USUAL)


def event(name: str, /, *, level: int | None = None, error: BaseException | None = None, **fields: Any) -> None:
    """Log that something happened; `error` adds its type, message and trace. Payloads are no fields."""
    at = EVENTS.get(name, (INFO, ""))[0] if level is None else level
    if _LOGGER.isEnabledFor(at):
        _LOGGER.log(at, Line(name, {**_BOUND.get(), **fields}), exc_info=error)


def events(name: str, rows: Sequence[Mapping[str, Any]]) -> None:
    """Log that something happened several times, by one write where the lines are ours. Of fields that cost little:
    numbers, ids, and texts that come again and again.
    """
    level = EVENTS[name][0]
    if not rows or not _LOGGER.isEnabledFor(level):
        return
    ours = [handler for handler in logging.getLogger().handlers if isinstance(handler, Handler)]
    if len(ours) == 1 and len(logging.getLogger().handlers) == 1 and not _LOGGER.handlers:
        ours[0].emit_many(level, name, rows)
        return
    for row in rows:
        event(name, **row)


def hears(name: str, level: int | None = None) -> bool:
    """Say whether lines of an event are written, at its level or at this one."""
    return _LOGGER.isEnabledFor(EVENTS[name][0] if level is None else level)


@contextlib.contextmanager
def bind(**fields: Any) -> Iterator[None]:
    """Add fields, such as request and tenant, to every line logged within, also in tasks started there."""
    token = _BOUND.set({**_BOUND.get(), **fields})
    try:
        yield
    finally:
        _BOUND.reset(token)


def configure(
    line_format: Literal["auto", "text", "json"],
    level: Literal["debug", "info", "warning", "error"],
    *,
    stream: TextIO | None = None,
    redact: Iterable[str] = SECRET_NAMES,
) -> None:
    """Send lines to `stream` (stderr) in place of an earlier call's, other libraries' warnings in the same form."""
    # There is no stderr where the process was started with it closed.
    target: TextIO | None = sys.stderr if stream is None else stream
    on_terminal = target is not None and target.isatty()
    as_json = line_format == "json" or (line_format == "auto" and not on_terminal)
    handler = Handler(target, as_json=as_json, redactor=Redactor(redact))
    root = logging.getLogger()
    for earlier in [present for present in root.handlers if isinstance(present, Handler)]:
        root.removeHandler(earlier)
    root.addHandler(handler)
    _LOGGER.setLevel(_LEVELS[level])
    root.setLevel(max(WARNING, _LEVELS[level]))


class Handler(logging.Handler):
    """Writes lines; what cannot be written is counted and told when writing works again."""

    def __init__(self, stream: TextIO | None, *, as_json: bool, redactor: Redactor) -> None:
        super().__init__()
        self._stream = stream
        self._as_json = as_json
        self._redactor = redactor
        self._pieces: dict[tuple[str, str], str] = {}
        self.dropped_count = 0

    def emit(self, record: logging.LogRecord) -> None:
        """Write the record; never raise."""
        try:
            if self.dropped_count:
                told = {"levelno": WARNING, "levelname": "WARNING", "msg": self._dropped()}
                self._write(self.format(logging.makeLogRecord(told)))
                self.dropped_count = 0
            self._write(self.format(record))
        except BrokenPipeError:
            self.dropped_count += 1
            self._abandon()
        except Exception:  # a full disk, a value that cannot be written
            self.dropped_count += 1

    def emit_many(self, level: int, name: str, rows: Sequence[Mapping[str, Any]]) -> None:
        """Write a line for each row, all at once; never raise."""
        word = logging.getLevelName(level)
        at = datetime.now(UTC).isoformat(timespec="milliseconds")
        if self._as_json:
            head = f'{{"time": "{at.replace("+00:00", "Z")}", "level": "{word.lower()}", "event": {json.dumps(name)}'
            lines = ["".join((head, *[self._piece(k, v) for k, v in row.items()], "}")) for row in rows]
        else:
            head = f"{at[11:23]} {word:<5} {_quoted(name)}"
            lines = ["".join((head, *[self._piece(k, v) for k, v in row.items()])) for row in rows]
        self.acquire()
        try:
            self._write("\n".join(lines))
        except Exception as error:  # as of single lines
            self.dropped_count += len(lines)
            if isinstance(error, BrokenPipeError):
                self._abandon()
        finally:
            self.release()

    def _piece(self, key: str, value: Any) -> str:
        """Return a field as it stands in a line; texts are remembered."""
        if isinstance(value, int | float):
            return f', "{key}": {value}' if self._as_json else f" {key}={value}"
        if isinstance(value, UUID):
            return f', "{key}": "{value}"' if self._as_json else f" {key}={value}"
        piece = self._pieces.get((key, value))
        if piece is None:
            [(name, shown)] = Line("", {key: value}).shown(self._redactor).items()
            piece = f", {json.dumps(name)}: {json.dumps(shown)}" if self._as_json else f" {name}={_quoted(shown)}"
            if len(self._pieces) >= MAX_PIECES:
                self._pieces.clear()
            self._pieces[key, value] = piece
        return piece

    def format(self, record: logging.LogRecord) -> str:
        """Return the record as one line."""
        line = _line(record)
        level = _SHORT.get(record.levelname, record.levelname)
        at = datetime.fromtimestamp(record.created, UTC).isoformat(timespec="milliseconds")
        if not self._as_json:
            return f"{at[11:23]} {level:<5} {line.text(self._redactor)}"
        fields = {f"{k}_" if k in _RESERVED else k: v for k, v in line.shown(self._redactor).items()}
        whole = {"time": at.replace("+00:00", "Z"), "level": level.lower(), "event": line.name[:100], **fields}
        return json.dumps(whole)

    def _write(self, text: str) -> None:
        if self._stream is None:
            return
        encoding = getattr(self._stream, "encoding", None) or "utf-8"
        line = text.encode(encoding, "backslashreplace").decode(encoding)
        self._stream.write(f"{line}\n")
        self._stream.flush()

    def _abandon(self) -> None:
        """Let what is written from now on go nowhere: a reader that is gone never comes back."""
        # Else the interpreter writes at its end what is left in the buffer, fails, and makes that its exit code.
        with contextlib.suppress(OSError, ValueError, AttributeError):
            nowhere = os.open(os.devnull, os.O_WRONLY)
            os.dup2(nowhere, self._stream.fileno())  # type: ignore[union-attr]
            os.close(nowhere)

    def _dropped(self) -> Line:
        return Line("log.dropped", {"count": self.dropped_count})


def _line(record: logging.LogRecord) -> Line:
    if isinstance(record.msg, Line):
        line = record.msg
    else:
        # What was handed to `extra` lies among the record's own attributes.
        extra = {key: value for key, value in vars(record).items() if key not in _OWN_ATTRIBUTES}
        name = str(extra.pop("event", "log.other"))
        line = Line(name, {**_BOUND.get(), "logger": record.name, "message": record.getMessage(), **extra})
    if not record.exc_info or record.exc_info[1] is None:
        return line
    error = record.exc_info[1]
    trace = "".join(traceback.format_exception(error, limit=-20))
    return Line(line.name, {**line.fields, "error": f"{type(error).__name__}: {error}", "trace": Trace(trace)})


class Trace(str):
    """A traceback: longer than other values, and its end matters most."""

    __slots__ = ()


def _shown(value: Any, redactor: Redactor) -> Any:
    if (isinstance(value, int) and abs(value) < 2**63) or (isinstance(value, float) and math.isfinite(value)):
        return value
    if isinstance(value, Trace):
        return redactor.text(value[-MAX_TRACE:])
    if isinstance(value, Mapping | list | tuple | set | frozenset):
        return _shown_items(value, redactor)
    return _cut(redactor.text(_text(value)))


def _shown_items(value: Any, redactor: Redactor) -> dict[str, Any] | list[Any] | str:
    """Return a short list or mapping with the types of its values; else as a text; no more is read than it shows."""
    is_mapping, size = isinstance(value, Mapping), 0
    kept: dict[str, Any] = {}
    for key, item in itertools.islice(value.items() if is_mapping else enumerate(value), MAX_ITEMS):
        name = str(key)
        kept[name] = HIDDEN if is_mapping and redactor.hides(name) else _shown(item, redactor)
        if (size := size + len(json.dumps({name: kept[name]}))) > MAX_VALUE:
            break
    shown = kept if is_mapping else list(kept.values())
    if (left := len(value) - len(kept)) == 0 and size <= MAX_VALUE:
        return shown
    return _cut(json.dumps(shown) if is_mapping else _joined(shown)) + (f" and {left} more" if left else "")


def _cut(text: str) -> str:
    return text if len(text) <= MAX_VALUE else f"{text[:MAX_VALUE]}… ({len(text)} characters)"


def _text(value: Any) -> str:
    if isinstance(value, datetime) and value.tzinfo is not None:
        return value.astimezone(UTC).isoformat().replace("+00:00", "Z")
    if isinstance(value, bytes | bytearray | memoryview):
        return f"{len(value)} bytes"
    try:
        return str(value)[:MAX_READ]
    except Exception:  # a value that cannot be written must not stop the event
        return f"unprintable {type(value).__name__}"


def _quoted(value: Any) -> str:
    if isinstance(value, list):
        text = _joined(value)
    else:
        text = json.dumps(value) if isinstance(value, bool | dict) else str(value)
    if _BARE.fullmatch(text) and text.isprintable():
        return text
    return '"' + "".join(_escaped(letter) for letter in text) + '"'


def _joined(items: Iterable[Any]) -> str:
    return ",".join(item if isinstance(item, str) else json.dumps(item) for item in items)


def _escaped(letter: str) -> str:
    return f"\\{letter}" if letter in '"\\' else _visible(letter)


def _visible(letter: str) -> str:
    # Not printable are also the marks that turn the direction of a text, and half surrogates.
    return letter if letter.isprintable() else letter.encode("unicode_escape").decode("ascii")
