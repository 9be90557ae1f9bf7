"""A job as its caller asks for it: every field is bounded before any statement, and the error names it."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta, timezone
from typing import Any
from uuid import UUID

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from windlass.errors import InvalidInput, PayloadTooLarge
from windlass.queue.newjob import (
    MAX_BATCH,
    MAX_DELAY_MS,
    MAX_DEPTH,
    MAX_JSON_BYTES,
    MAX_TIMEOUT_S,
    NewJob,
    check_json,
    check_name,
    validate,
)
from windlass.queue.retry import RetryPolicy

ID = UUID("019b7680-0000-7000-8000-000000000001")
NAMES = ["task", "tenant", "queue"]
NAME_LISTS = ["labels", "tags"]
KEYS = ["idempotency_key", "unique_key"]
RANGES = {
    "priority": (-127, 127),
    "max_attempts": (1, 1000),
    "max_lost": (1, 1000),
    "timeout_s": (1, MAX_TIMEOUT_S),
    "delay_ms": (0, MAX_DELAY_MS),
    "start_within_ms": (0, MAX_DELAY_MS),
    "idempotency_ms": (1, MAX_DELAY_MS),
    "unique_ms": (1, MAX_DELAY_MS),
}
HUGE = [2**31, 2**53 + 1, 2**63, 2**64, 10**400, 10**5000]
UNSTORABLE = ["a\x00b", "\x00", "\ud800", "a\udfff"]
ODD_TEXT = ["ﬀ", "e\u0301", "é", "\u202eabc", "a\u200bb", "z" + "\u0301" * 199, "раураl", "🂡", " ", "١"]


def job(**fields: Any) -> NewJob:
    """Return a job that is fine but for the fields a test names."""
    return NewJob(**{"id": ID, "task": "mail.send", **fields})


def refused(**fields: Any) -> InvalidInput:
    """Return the error that a job with these fields is refused with, second in its batch."""
    with pytest.raises(InvalidInput) as error:
        validate([job(), job(**fields)])
    assert 1 == error.value.index
    assert str(error.value).startswith(f"jobs[1].{error.value.field}: ")
    assert len(str(error.value)) < 1000
    return error.value


def accept(**fields: Any) -> None:
    """Expect a job with these fields to be accepted."""
    validate([job(**fields)])


def test_the_defaults_are_those_of_the_requirements() -> None:
    """Queue default, priority 0, an hour, three attempts, five losses, keys for a day."""
    plain = job()

    assert ("default", "default", 0, 3600) == (plain.tenant, plain.queue, plain.priority, plain.timeout_s)
    assert (3, 5, 86_400_000) == (plain.max_attempts, plain.max_lost, plain.idempotency_ms)
    accept()


@pytest.mark.parametrize("field", NAMES)
def test_names_are_bounded(field: str) -> None:
    """A name has 1 to 200 characters."""
    accept(**{field: "x"})
    accept(**{field: "x" * 200})
    for bad in ("", "x" * 201, "x" * 10**7):
        assert field == refused(**{field: bad}).field


@pytest.mark.parametrize("field", [*NAMES, *NAME_LISTS])
@pytest.mark.parametrize("bad", [*UNSTORABLE, "a/b", "a,b", "a\nb", "\x1b[31m", "\x7f", "tab\t"])
def test_names_hold_no_control_characters_or_separators(field: str, bad: str) -> None:
    """NUL, half surrogates, control characters, slash and comma are refused in every name."""
    assert field == refused(**{field: bad if field in NAMES else (bad,)}).field


@pytest.mark.parametrize("text", ODD_TEXT)
def test_odd_but_storable_text_is_accepted(text: str) -> None:
    """Marks, bidi, zero-width, homoglyphs and blanks are the caller's business: they are stored as they are."""
    for field in NAMES + KEYS:
        accept(**{field: text})
    accept(labels=(text,), tags=(text,))


@pytest.mark.parametrize("field", NAME_LISTS)
def test_lists_of_names_are_bounded(field: str) -> None:
    """At most 32 labels and 32 tags, each of them a name."""
    accept(**{field: tuple(f"n{i}" for i in range(32))})

    assert field == refused(**{field: tuple(f"n{i}" for i in range(33))}).field
    assert field == refused(**{field: ("fine", "")}).field


@pytest.mark.parametrize("field", KEYS)
def test_keys_are_bounded(field: str) -> None:
    """A key has 1 to 512 characters and at most 1,024 bytes, since it is indexed; NUL is no text."""
    accept(**{field: "k" * 512})
    accept(**{field: "é" * 512})
    for bad in ("k" * 513, "🂡" * 257, *UNSTORABLE):
        assert field == refused(**{field: bad}).field


def test_an_empty_key_is_refused_and_an_absent_one_is_not() -> None:
    """Empty is a value, and refused."""
    assert "idempotency_key" == refused(idempotency_key="").field
    assert "unique_key" == refused(unique_key="").field
    accept(idempotency_key=None, unique_key=None)


def test_what_names_a_lane_is_bounded_together() -> None:
    """Tenant, queue, task and labels share an index entry: 2,400 bytes together at most."""
    fine = {"tenant": "t" * 200, "queue": "q" * 200, "task": "a" * 200}
    accept(**fine, labels=tuple(f"{i:0199d}" for i in range(9)))

    assert "labels" == refused(**fine, labels=tuple(f"{i:0199d}" for i in range(10))).field
    assert "labels" == refused(tenant="🂡" * 200, queue="🂡" * 200, task="🂡" * 200, labels=("x",)).field


@pytest.mark.parametrize(("field", "bounds"), RANGES.items())
def test_numbers_lie_in_their_range(field: str, bounds: tuple[int, int]) -> None:
    """Both ends are accepted, one more or less is not, nor is anything huge."""
    least, most = bounds
    accept(**{field: least})
    accept(**{field: most})
    for bad in (least - 1, most + 1, *HUGE, *(-number for number in HUGE)):
        if not least <= bad <= most:
            assert field == refused(**{field: bad}).field


def test_no_time_out_is_allowed() -> None:
    """None means absent: no time-out, no delay, a unique key as long as the job lives."""
    accept(timeout_s=None, delay_ms=None, unique_ms=None, run_at=None, start_by=None)


@pytest.mark.parametrize("field", ["run_at", "start_by", "slot_at"])
@pytest.mark.parametrize(
    "bad",
    [
        datetime(2026, 1, 1),  # noqa: DTZ001
        datetime(1, 1, 1, tzinfo=timezone(timedelta(hours=14))),
        datetime(1, 1, 1, tzinfo=UTC),
        datetime(1969, 12, 31, 23, 59, 59, 999_999, tzinfo=UTC),
        datetime(9999, 1, 1, tzinfo=UTC),
        datetime.max.replace(tzinfo=timezone(timedelta(hours=-14))),
    ],
    ids=str,
)
def test_instants_have_a_zone_and_a_sane_year(field: str, bad: datetime) -> None:
    """Naive instants, years before 1970 or from 9999 on, and what overflows in UTC are refused."""
    assert field == refused(**{field: bad}).field


@pytest.mark.parametrize("field", ["run_at", "start_by", "slot_at"])
def test_instants_may_lie_anywhere_else(field: str) -> None:
    """The past is due now, the far future waits, any zone will do."""
    accept(**{field: datetime(1970, 1, 1, tzinfo=UTC)})
    accept(**{field: datetime(9998, 12, 31, 23, 59, 59, 999_999, tzinfo=UTC)})
    accept(**{field: datetime(2026, 3, 29, 2, 30, tzinfo=timezone(timedelta(hours=-23, minutes=-59)))})


def test_a_time_and_a_delay_exclude_each_other() -> None:
    """run_at and delay_ms say the same thing twice, perhaps differently."""
    assert "delay_ms" == refused(run_at=datetime(2026, 1, 1, tzinfo=UTC), delay_ms=0).field


@pytest.mark.parametrize("field", ["payload", "headers"])
@pytest.mark.parametrize(
    "bad",
    [
        "",
        " ",
        "{",
        "1 2",
        "nul",
        "NaN",
        "Infinity",
        "-Infinity",
        "1e999",
        "1e400000",
        "01",
        "1.",
        "+1",
        "[1,]",
        "{'a': 1}",
        '{"a" 1}',
        '"\t"',
        '"\\ud800"',
        '"\\q"',
        "\ufeff1",
        "1" * 5000,
        *UNSTORABLE,
        "[" * 100_000,
        "[" * 100_000 + "]" * 100_000,
    ],
    ids=lambda text: ascii(text)[:20],
)
def test_what_is_not_json_is_refused(field: str, bad: str) -> None:
    """Payload and headers are one JSON value each, that PostgreSQL, SQLite and every reader can take."""
    assert field == refused(**{field: bad}).field


@pytest.mark.parametrize("field", ["payload", "headers"])
@pytest.mark.parametrize(
    "text",
    ["null", "0", "-0", "1.0", "true", '"text"', "[]", "{}", ' {"a": [1, {"b": null}]} ', '{"a":1,"a":2}', '"é🂡"'],
)
def test_any_json_value_is_accepted(field: str, text: str) -> None:
    """Scalars too; it is stored as received, so doubled keys are the reader's business."""
    accept(**{field: text})


@pytest.mark.parametrize(("opening", "inside", "closing"), [("[", "", "]"), ("[", "1", "]"), ('{"a":', "1", "}")])
def test_json_is_nested_64_deep_at_most(opening: str, inside: str, closing: str) -> None:
    """Depth 64 is accepted, 65 refused; an empty list counts like a full one."""
    accept(payload=opening * MAX_DEPTH + inside + closing * MAX_DEPTH if inside else "[" * 64 + "]" * 64)

    deeper = opening * (MAX_DEPTH + 1) + inside + closing * (MAX_DEPTH + 1)
    assert "payload" == refused(payload=deeper).field


def test_a_wide_payload_is_not_deep() -> None:
    """Many elements side by side are no depth."""
    accept(payload="[" + ",".join("[1]" for _ in range(60_000)) + "]")


@pytest.mark.parametrize("field", ["payload", "headers"])
@pytest.mark.parametrize("character", ["x", "é", "🂡"])
def test_the_size_limit_counts_bytes(field: str, character: str) -> None:
    """256 KiB are accepted and one byte more is PayloadTooLarge; characters of several bytes count as such."""
    width = len(character.encode())
    room = MAX_JSON_BYTES - 2
    full = '"' + character * (room // width) + "x" * (room % width) + '"'
    accept(**{field: full[:-2] + '"'})
    accept(**{field: full})

    error = refused(**{field: full[:-1] + 'x"'})

    assert isinstance(error, PayloadTooLarge)
    assert 413 == error.status


@pytest.mark.parametrize("size", [1, 2, MAX_BATCH])
def test_a_batch_of_up_to_a_thousand_is_accepted(size: int) -> None:
    """One to a thousand jobs are a request."""
    validate([job(id=UUID(int=n)) for n in range(size)])


@pytest.mark.parametrize("size", [0, MAX_BATCH + 1])
def test_other_batches_are_refused(size: int) -> None:
    """None, or more than a thousand, are not; no index is named, for no job is at fault."""
    with pytest.raises(InvalidInput, match=f"^jobs: {size} jobs in one request") as error:
        validate([job(id=UUID(int=n)) for n in range(size)])

    assert error.value.index is None


@pytest.mark.parametrize("index", [0, 1, 998, 999])
def test_the_first_bad_job_is_named(index: int) -> None:
    """The error carries the index of the first bad job of the batch, also if later ones are bad too."""
    jobs = [job()] * MAX_BATCH
    jobs[index:] = [job(priority=128)] * (MAX_BATCH - index)

    with pytest.raises(InvalidInput, match=rf"^jobs\[{index}\]\.priority: 128 is not between -127 and 127") as error:
        validate(jobs)

    assert index == error.value.index


@pytest.mark.parametrize(
    "policy",
    [
        RetryPolicy(base_s=-1),
        RetryPolicy(base_s=float("nan")),
        RetryPolicy(cap_s=float("inf")),
        RetryPolicy(kind="table", delays_s=(1.0, -1.0)),
        RetryPolicy(kind="table", delays_s=(1.0,) * 1001),
        RetryPolicy(factor=0.5),
        RetryPolicy(factor=101),
        RetryPolicy(factor=float("nan")),
        RetryPolicy(jitter=-0.1),
        RetryPolicy(jitter=1.1),
        RetryPolicy(max_attempts=0),
        RetryPolicy(max_attempts=1001),
        RetryPolicy(by_error={"e": RetryPolicy(by_error={"f": RetryPolicy()})}),
        RetryPolicy(by_error={"e": RetryPolicy(base_s=-1)}),
        RetryPolicy(by_error={"": RetryPolicy()}),
        RetryPolicy(by_error={"\ud800": RetryPolicy()}),
        RetryPolicy(by_error={"x" * 201: RetryPolicy()}),
        RetryPolicy(by_error={f"e{i}": RetryPolicy() for i in range(33)}),
    ],
    ids=lambda policy: ascii(policy)[:60],
)
def test_retry_policies_are_bounded(policy: RetryPolicy) -> None:
    """Waits, factor, jitter, attempts and the policies by error type lie in their ranges."""
    assert refused(retry=policy).field.startswith("retry")


def test_a_sensible_policy_is_accepted() -> None:
    """The ends of the ranges are inside."""
    inner = RetryPolicy(kind="table", delays_s=(0.0, MAX_DELAY_MS / 1000), factor=100, jitter=1, max_attempts=1000)
    accept(retry=RetryPolicy(base_s=0, cap_s=0, factor=1, jitter=0, by_error={"timeout": inner}))


@given(st.text(max_size=300))
def test_any_name_is_accepted_or_invalid(text: str) -> None:
    """What is accepted can be encoded and holds nothing PostgreSQL refuses; nothing else is raised."""
    try:
        check_name("task", text)
    except InvalidInput:
        return
    assert "\x00" not in text
    assert 1 <= len(text.encode().decode()) <= 200


@given(st.text() | st.binary().map(lambda raw: raw.decode("utf-8", "surrogateescape")))
def test_any_text_is_json_or_invalid(text: str) -> None:
    """No payload raises anything but InvalidInput."""
    try:
        check_json("payload", text)
    except InvalidInput:
        return
    msgspec.json.decode(text)


JSON = st.recursive(
    st.none()
    | st.booleans()
    | st.integers(-(2**63), 2**63 - 1)
    | st.floats(allow_nan=False, allow_infinity=False)
    | st.text(),
    lambda inner: st.lists(inner) | st.dictionaries(st.text(), inner),
    max_leaves=10,
)


@given(JSON)
def test_any_json_of_ours_is_accepted(value: Any) -> None:
    """What an encoder of JSON writes is taken."""
    check_json("payload", msgspec.json.encode(value).decode())


def test_a_repeated_request_is_recognised() -> None:
    """The content hash leaves out ids and the idempotency key, and nothing else."""
    first = job(idempotency_key="a", payload='{"n":1}')
    again = msgspec.structs.replace(first, id=UUID(int=ID.int + 1), idempotency_key="b", idempotency_ms=5)

    assert first.content_hash == again.content_hash
    for other in ({"payload": '{"n": 1}'}, {"task": "other"}, {"priority": 1}, {"tags": ("x",)}, {"unique_key": "u"}):
        assert first.content_hash != msgspec.structs.replace(first, **other).content_hash


def test_labels_name_a_lane_in_any_order() -> None:
    """Labels are a set: order and doubles do not matter."""
    assert job(labels=("gpu", "eu", "gpu")).lane == job(labels=("eu", "gpu")).lane
    assert "eu,gpu" == job(labels=("gpu", "eu")).lane.labels
