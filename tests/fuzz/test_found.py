"""What fuzzing has found, as ordinary tests."""

from __future__ import annotations

import pytest

from windlass.errors import InvalidInput
from windlass.server.decoding import BodyDecoder
from windlass.server.routes import ROUTES
from windlass.wire.jobs import JobRequest, Policy

decode = BodyDecoder(JobRequest).decode


@pytest.mark.parametrize("span", ["0", "0.0", '"0s"', '"0w0.000d0ms"'])
def test_a_unique_key_is_held_for_more_than_nothing(span: str) -> None:
    """The document asks for it, so the field is refused and not what is made of it."""
    with pytest.raises(InvalidInput) as refused:
        decode(f'{{"task": "t", "unique_for": {span}}}'.encode())

    assert "unique_for" == refused.value.field


def test_a_whole_number_may_be_written_with_a_fraction_wherever_it_stands() -> None:
    """By JSON Schema 352.0 is an integer, also in a policy for one type of error."""
    body = b'{"task": "t", "priority": 2.0, "retry_policy": {"by_error": {"E": {"max_attempts": 352.0}}}}'

    asked = decode(body)

    assert 2 == asked.priority
    assert isinstance(asked.retry_policy, Policy)
    assert 352 == asked.retry_policy.by_error["E"].max_attempts


def test_types_of_errors_are_not_taken_for_fields() -> None:
    """Names that a caller gives stay as they are, also where they look like an older name of ours."""
    body = b'{"task": "t", "retry_policy": {"byError": {"backoff": {"backoff": "fixed"}, "maxAttempts": {}}}}'

    asked = decode(body)

    assert isinstance(asked.retry_policy, Policy)
    assert {"backoff", "maxAttempts"} == set(asked.retry_policy.by_error)
    assert "fixed" == asked.retry_policy.by_error["backoff"].kind


def test_a_payload_is_kept_byte_for_byte_beside_older_names() -> None:
    """Where fields are renamed, what is a caller's own is not touched: 1.0 stays 1.0."""
    asked = decode(b'{"name": "t", "payload": 1.0}')

    assert b"1.0" == bytes(asked.payload)


def test_the_time_of_a_stream_is_not_taken_for_the_time_of_an_answer() -> None:
    """A reader who follows along for an hour does not make the server look slow."""
    waiting = {route.name for route in ROUTES if route.may_wait}

    assert {"GET /events", "POST /jobs/claim", "GET /jobs/{id}"} <= waiting
    assert "POST /jobs" not in waiting
