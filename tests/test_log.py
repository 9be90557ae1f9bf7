"""The log: one line per event, nothing forged, nothing leaked, and no crash when it cannot be written."""

from __future__ import annotations

import ast
import asyncio
import io
import json
import logging
import os
import re
import subprocess
import sys
from collections.abc import Callable, Iterator
from datetime import datetime, timedelta, timezone
from pathlib import Path
from typing import Any, Literal
from uuid import UUID

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.rules.source import REPOSITORY, dotted, files, tree_of
from windlass import log
from windlass.config.redact import Redactor

CANARY = "canary7hunter2"
JOB = UUID(int=7)
Form = Literal["text", "json"]
FORMS: list[Form] = ["text", "json"]


@pytest.fixture(autouse=True)
def _own_logging() -> Iterator[None]:
    """Give back the standard logging as it was."""
    root, ours = logging.getLogger(), logging.getLogger("windlass")
    before = [*root.handlers], root.level, ours.level
    yield
    root.handlers[:] = before[0]
    root.setLevel(before[1])
    ours.setLevel(before[2])


def lines_of(form: Form, act: Callable[[], object], **options: Any) -> list[str]:
    """Return the lines that are logged while `act` runs."""
    stream = io.StringIO()
    log.configure(form, options.pop("level", "debug"), stream=stream, **options)
    # Not to those of the test run: half a character cannot be sent from one of its processes to another.
    root = logging.getLogger()
    root.handlers[:] = [handler for handler in root.handlers if isinstance(handler, log.Handler)]
    act()
    return stream.getvalue().split("\n")[:-1]


def fields_of(act: Callable[[], object], **options: Any) -> dict[str, Any]:
    """Return the one line that is logged, read as JSON."""
    (line,) = lines_of("json", act, **options)
    found: dict[str, Any] = json.loads(line)
    return found


def test_a_line_for_people_has_time_level_event_and_fields() -> None:
    """Text: the time of day, the level, the event, then name=value; what is absent is left out."""
    (line,) = lines_of("text", lambda: log.event("job.lost", job=JOB, worker="web 3", attempt=2, ok=True, none=None))

    assert re.fullmatch(r"\d\d:\d\d:\d\d\.\d{3}", line[:12])
    assert f' WARN  job.lost job={JOB} worker="web 3" attempt=2 ok=true' == line[12:]


def test_a_line_for_programs_is_json() -> None:
    """JSON: one object per line, with numbers as numbers and the time in UTC."""
    found = fields_of(lambda: log.event("jobs.claimed", worker="w1", count=3, ok=False, wait_s=0.5))

    assert re.fullmatch(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{3}Z", found.pop("time"))
    assert {
        "level": "info", "event": "jobs.claimed", "worker": "w1", "count": 3, "ok": False, "wait_s": 0.5
    } == found  # fmt: skip


def test_values_keep_their_types_and_times_are_in_utc() -> None:
    """Short lists and mappings are arrays and objects for programs; long ones are cut, as texts."""
    at = datetime(2026, 1, 1, 13, tzinfo=timezone(timedelta(hours=1)))
    fields: dict[str, Any] = {"run_ms": [1, 20], "metrics": {"rows": 7, "token": CANARY}, "at": at, "ids": range(3)}

    found = fields_of(lambda: log.event("job.completed", **fields, many=list(range(100))))
    (text,) = lines_of("text", lambda: log.event("job.completed", **fields))

    assert ([1, 20], {"rows": 7, "token": "***"}) == (found["run_ms"], found["metrics"])
    assert "2026-01-01T12:00:00Z" == found["at"]
    assert isinstance(found["many"], str)
    assert 'run_ms=1,20 metrics="{\\"rows\\": 7, \\"token\\": \\"***\\"}" at=2026-01-01T12:00:00Z' in text


def test_every_event_has_a_level_and_a_sentence() -> None:
    """The level of an event is that of the table; a caller may say otherwise."""
    for name, (level, sentence) in log.EVENTS.items():
        found = fields_of(lambda name=name: log.event(name))  # type: ignore[misc]

        assert logging.getLevelName(level).lower().replace("warning", "warn") == found["level"]
        assert sentence.endswith(".")
    assert "error" == fields_of(lambda: log.event("job.completed", level=logging.ERROR))["level"]


def test_the_table_has_every_event_that_is_logged_and_no_other() -> None:
    """A name that a line of the source logs stands in EVENTS, and so in the documents; each of EVENTS is logged."""
    logging_calls = {"log.event", "_several", "Line", "extra.pop"}
    names = {
        constant.value
        for path in files(REPOSITORY / "src", "**/*.py")
        for call in ast.walk(tree_of(path))
        if isinstance(call, ast.Call)
        for argument in (
            *(call.args if dotted(call.func) in logging_calls else ()),
            *(keyword.value for keyword in call.keywords if keyword.arg == "kind"),
        )
        for constant in ast.walk(argument)
        if isinstance(constant, ast.Constant) and isinstance(constant.value, str) and "." in constant.value
    }

    assert set(log.EVENTS) == {name for name in names if re.fullmatch(r"[a-z_]+\.[a-z_]+", name)}


@pytest.mark.parametrize(("level", "count"), [("debug", 4), ("info", 3), ("warning", 2), ("error", 1)])
def test_the_level_decides_what_is_logged(level: str, count: int) -> None:
    """What is below the level is not written."""

    def act() -> None:
        for name in ("job.pooled", "job.completed", "job.lost", "job.dead"):
            log.event(name)

    assert count == len(lines_of("json", act, level=level))


@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize("letter", ["\r", "\n", "\x1b", "\x00", "\x7f", "\x9b", "\u2028", "\u202e", "\ud800", "\x85"])
@pytest.mark.parametrize("where", ["value", "name", "event", "bound", "message", "error", "item"])
def test_rel_t18_nothing_forges_a_line_or_steers_a_terminal(form: Form, letter: str, where: str) -> None:
    """Whatever has a control character, the answer is one line of printable characters; a trace stands below it."""
    evil = f"x{letter}12:00:00.000 INFO  forged"

    def act() -> None:
        with log.bind(**({"request": evil} if where == "bound" else {})):
            if where == "message":
                logging.getLogger("windlass.other").warning("%s", evil)
            else:
                fields: dict[str, Any] = {evil if where == "name" else "field": [evil] if where == "item" else evil}
                error = ValueError(evil) if where == "error" else None
                log.event(evil if where == "event" else "job.failed", error=error, **fields)

    line, *below = lines_of(form, act)

    assert all(text.isprintable() for text in (line, *below))
    assert all(text.startswith("    ") for text in below)
    assert (form == "text" and where == "error") == bool(below)
    assert form == "text" or line.isascii()


@given(st.text(max_size=30), st.dictionaries(st.text(max_size=8), st.text(max_size=20), max_size=3))
def test_rel_t18_any_text_is_one_line(name: str, fields: dict[str, str]) -> None:
    """No text in any place breaks a line, and JSON lines stay JSON."""
    line = log.Line(name, fields)
    record = logging.makeLogRecord({"levelno": 20, "levelname": "INFO", "msg": line})
    texts = [log.Handler(None, as_json=form == "json", redactor=Redactor()).format(record) for form in FORMS]

    assert all(text.isprintable() for text in texts)
    assert isinstance(json.loads(texts[1]), dict)


def test_a_field_cannot_replace_time_level_or_event() -> None:
    """A field of such a name gets another one."""
    found = fields_of(lambda: log.event("job.lost", time="never", event="forged"))

    assert "job.lost" == found["event"]
    assert ("never", "forged") == (found["time_"], found["event_"])


@pytest.mark.parametrize("form", FORMS)
def test_a_long_value_is_cut(form: Form) -> None:
    """A value shows a thousand characters at most, a list twenty items, and a trace its end."""

    def act() -> None:
        log.event("job.failed", reason="x" * 10**6, ids=list(range(10**5)), huge=10**5000, raw=b"x" * 10**6)

    (line,) = lines_of(form, act)

    assert len(line) < 2000
    assert "and 99980 more" in line
    assert "1000000 bytes" in line


@pytest.mark.parametrize("form", FORMS)
def test_rel_t17_secrets_and_payloads_are_not_logged(form: Form) -> None:
    """Fields named like a secret, payloads, passwords in URLs and tokens in messages are hidden."""
    error = ValueError(f"cannot reach postgresql://u:{CANARY}@h/d with token={CANARY}")

    def act() -> None:
        with log.bind(authorization=CANARY):
            log.event("job.failed", payload=CANARY, result={"a": CANARY}, api_key=CANARY, error=error)
        log.event("job.failed", db_password=CANARY, args=[CANARY], kwargs={"a": CANARY}, headers={"a": CANARY})
        log.event("job.failed", note=f"Bearer {CANARY}", options={"deep": [{"X-Secret": CANARY}]}, key=f"wl_a_{CANARY}")
        logging.getLogger("uvicorn").error("password=%s", CANARY)

    lines = lines_of(form, act)

    assert 4 == sum(not line.startswith("    ") for line in lines)
    assert CANARY not in "".join(lines)
    assert "***" in lines[0]


@pytest.mark.parametrize("count", [20, 1000])
def test_rel_t9_no_more_of_a_mapping_is_redacted_than_is_shown(count: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """Whoever sends large metrics does not decide what a line costs; what is left out is counted."""
    read: list[str] = []
    redact = Redactor.text

    def noted(redactor: Redactor, text: str) -> str:
        read.append(text)
        return redact(redactor, text)

    monkeypatch.setattr(Redactor, "text", noted)
    metrics = {f"m{number}": "x " * 10_000 for number in range(count)}

    found = fields_of(lambda: log.event("job.completed", metrics=[metrics] * 5))

    assert len(found["metrics"]) < 2 * log.MAX_VALUE
    assert "and 4 more" in found["metrics"]
    assert sum(map(len, read)) <= 5 * 2 * log.MAX_READ


def test_rel_t17_a_secret_is_hidden_before_a_value_is_cut() -> None:
    """Cutting a value does not cut away what tells that it is a secret."""
    url = f"{'x' * 950} postgresql://u:{CANARY}{'p' * 200}@h/d"

    assert CANARY not in str(fields_of(lambda: log.event("job.failed", reason=url)))


def test_own_names_of_secrets_are_hidden() -> None:
    """`security.redact` decides which names are secret."""
    found = fields_of(lambda: log.event("job.failed", pin_code=CANARY, token="seen"), redact=["pinCode"])

    assert ("***", "seen") == (found["pin_code"], found["token"])


async def test_bound_fields_are_on_every_line_within() -> None:
    """Request and tenant are on each line of a request, also of tasks it starts, and on no other."""
    stream = io.StringIO()
    log.configure("json", "info", stream=stream)

    async def request(number: int) -> None:
        with log.bind(request=number):
            await asyncio.sleep(0)
            with log.bind(tenant="t"):
                await asyncio.create_task(later())
            log.event("jobs.claimed")

    async def later() -> None:
        log.event("jobs.submitted", own=1)

    await asyncio.gather(request(1), request(2))
    log.event("server.stopped")

    found = [json.loads(line) for line in stream.getvalue().splitlines()]
    seen = sorted((line["event"], line.get("request", 0), line.get("tenant", "")) for line in found)
    assert [
        ("jobs.claimed", 1, ""),
        ("jobs.claimed", 2, ""),
        ("jobs.submitted", 1, "t"),
        ("jobs.submitted", 2, "t"),
        ("server.stopped", 0, ""),
    ] == seen


def test_an_error_is_on_its_line() -> None:
    """Type, message and trace of an exception stand on the one line of the event."""

    def act() -> None:
        try:
            raise KeyError("gone")
        except KeyError as error:
            log.event("duty.failed", error=error, duty="rescue")

    found = fields_of(act)

    assert ("rescue", "KeyError: 'gone'") == (found["duty"], found["error"])
    assert "test_log.py" in found["trace"]


def test_other_libraries_are_logged_in_the_same_form() -> None:
    """A warning of another library is a line with its logger; its chatter is left out."""

    def act() -> None:
        logging.getLogger("asyncio").info("chatter")
        logging.getLogger("asyncio").error("Task %s\nfailed", 7)

    found = fields_of(act)

    assert ("log.other", "asyncio", "Task 7\nfailed") == (found["event"], found["logger"], found["message"])


def test_what_other_code_hands_over_as_extra_is_on_its_line() -> None:
    """The standard way to log with fields works too: `extra` becomes fields, its `event` the name."""

    def act() -> None:
        extra = {"event": "duty_lost", "duty": "rescue", "api_key": CANARY}
        with log.bind(tenant="t"):
            logging.getLogger("windlass").warning("duty %s lost", "rescue", extra=extra)

    found = fields_of(act)

    assert ("duty_lost", "rescue", "***", "t") == (found["event"], found["duty"], found["api_key"], found["tenant"])
    assert "duty rescue lost" == found["message"]
    assert {"time", "level", "event", "tenant", "logger", "message", "duty", "api_key"} == set(found)


def test_without_configure_a_line_is_whole(caplog: pytest.LogCaptureFixture) -> None:
    """In a program with logging of its own, the message is the whole line, redacted."""
    log.event("job.lost", job=JOB, token=CANARY, worker="a\nb")

    assert [f'job.lost job={JOB} token=*** worker="a\\nb"'] == caplog.messages


def test_configure_again_replaces_the_stream() -> None:
    """The second call takes the place of the first; nothing is written twice."""
    first, second = io.StringIO(), io.StringIO()

    log.configure("json", "info", stream=first)
    log.configure("json", "info", stream=second)
    log.event("server.started")

    assert "" == first.getvalue()
    assert 1 == second.getvalue().count("\n")


class Terminal(io.StringIO):
    """A stream that says it is a terminal."""

    def isatty(self) -> bool:
        """Say yes."""
        return True


@pytest.mark.parametrize(("stream", "is_json"), [(Terminal(), False), (io.StringIO(), True)])
def test_auto_is_text_on_a_terminal(stream: io.StringIO, is_json: bool) -> None:
    """People get text, files and pipes JSON lines."""
    log.configure("auto", "info", stream=stream)
    log.event("server.started")

    assert is_json is stream.getvalue().startswith("{")


class Full(io.StringIO):
    """A disk that is full until told otherwise."""

    full = True

    def write(self, text: str) -> int:
        """Write, or fail as a full disk does."""
        if self.full:
            raise OSError(28, "No space left on device")
        return super().write(text)


def test_a_full_disk_stops_nobody_and_is_told_afterwards() -> None:
    """Lines that cannot be written are counted, and the count is the first line that can be."""
    stream = Full()
    log.configure("json", "info", stream=stream)

    for _ in range(3):
        log.event("jobs.claimed")
    stream.full = False
    log.event("jobs.submitted")

    found = [json.loads(line) for line in stream.getvalue().splitlines()]
    assert [("log.dropped", 3), ("jobs.submitted", None)] == [(line["event"], line.get("count")) for line in found]


class Unprintable:
    """A value that cannot be written."""

    def __str__(self) -> str:
        raise RuntimeError("no")


def test_a_value_that_cannot_be_written_stops_nobody() -> None:
    """The event is logged, and says so."""
    found = fields_of(lambda: log.event("job.failed", bad=Unprintable(), worse={"a": Unprintable()}, nan=float("nan")))

    assert ("unprintable Unprintable", "nan") == (found["bad"], found["nan"])
    assert {"a": "unprintable Unprintable"} == found["worse"]


def test_a_stream_of_few_letters_stops_nobody() -> None:
    """Where the stream knows only ASCII, other letters are escaped."""
    raw = io.BytesIO()
    stream = io.TextIOWrapper(raw, encoding="ascii")
    log.configure("text", "info", stream=stream)

    log.event("job.failed", reason="é€")

    assert raw.getvalue().endswith(b"reason=\\xe9\\u20ac\n")


@pytest.mark.parametrize("closed", ["stderr", "stdout", "none"])
def test_a_closed_pipe_stops_nobody(closed: str, tmp_path: Path) -> None:
    """A process whose log nobody reads, or that was started without stderr, goes on and ends with exit code 0."""
    program = (
        "import sys\n"
        "from windlass import log\n"
        f"log.configure('json', 'info', stream={'sys.stdout' if closed == 'stdout' else None})\n"
        "for _ in range(1000): log.event('jobs.claimed', count=1)\n"
        "open('done', 'w').close()\n"
    )
    reading, writing = os.pipe()
    os.close(reading)
    shell = ["sh", "-c", 'exec "$@" 2>&-', "sh"] if closed == "none" else []

    ran = subprocess.run(
        [*shell, sys.executable, "-c", program],
        stdout=writing,
        stderr=subprocess.PIPE if closed == "stdout" else writing,
        cwd=tmp_path,
        env={**os.environ, "PYTHONPATH": str(REPOSITORY / "src")},
        check=False,
    )

    os.close(writing)
    assert 0 == ran.returncode
    assert not ran.stderr
    assert (tmp_path / "done").exists()
