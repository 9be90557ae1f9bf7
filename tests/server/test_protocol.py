"""The protocol: limits before a request is one, and answers of ours to what is none. No database is asked."""

from __future__ import annotations

import asyncio
import contextlib
import json
import logging
from collections.abc import Callable
from typing import Any, cast
from unittest.mock import Mock

import pytest
import uvicorn
from uvicorn.server import ServerState

from tests.server.wires import GET, Answer, App, serving
from windlass.server.protocol import HEAD_BYTES, HEAD_COUNT, LEAST_PACE, PIPELINED, TAKE_S, Protocol

UPGRADE = b"Connection: Upgrade\r\nUpgrade: h2c\r\n"


class Hasty(Protocol):
    """The protocol, with a patience that a test can await, and that a busy machine does not use up by itself."""

    head_s = 1.0


def assert_problem(answer: Answer, status: int, code: str) -> None:
    """See that an answer is a problem of ours, and the last of its connection."""
    found, headers, body = answer
    assert (status, "application/problem+json", "close") == (found, headers["content-type"], headers["connection"])
    problem = json.loads(body)
    assert (status, code) == (problem["status"], problem["code"])
    assert {"type", "title", "detail", "errors"} <= set(problem)


@pytest.mark.parametrize(
    "head",
    [
        GET + b"A: " + b"x" * (1 << 20) + b"\r\n\r\n",
        GET + b"A: " + b"x" * (HEAD_BYTES + 1) + b"\r\n\r\n",
        GET + b"A: x\r\n" * (HEAD_COUNT + 1) + b"\r\n",
        GET + b"A: x\r\n" * 10_000 + b"\r\n",
        b"GET /healthz HTTP/1.1\r\n" + b"x" * (1 << 20),
        b"GET /" + b"x" * (HEAD_BYTES + 1) + b" HTTP/1.1\r\n\r\n",
    ],
    ids=["megabyte", "one byte too many", "one header too many", "ten thousand headers", "endless name", "long path"],
)
async def test_rel_t9_a_head_over_the_limit_is_refused(head: bytes) -> None:
    """T9: 64 KiB and 200 headers; beyond them 431, and the connection ends. The path is part of the head."""
    async with serving() as server:
        answer = await server.ask(head)

        assert_problem(answer, 431, "head_too_large")


async def test_a_head_within_the_limits_is_answered() -> None:
    """What is large, but not too large, is a request like any other, also a second one of its connection."""
    head = GET + b"A: x\r\n" * (HEAD_COUNT - 2) + b"B: " + b"x" * (HEAD_BYTES - 2000) + b"\r\n\r\n"
    async with serving() as server:
        wire = await server.connect()
        answers = []
        for _ in range(2):
            await wire.send(head)
            answers.append((await wire.answer())[0])

        assert [200, 200] == answers


async def test_rel_t9_an_endless_header_is_not_read_on() -> None:
    """T9: a header without an end is refused before it is joined; what still comes is dropped."""
    async with serving() as server:
        wire = await server.connect()
        await wire.send(GET + b"A: ")
        for _ in range(8):
            await wire.send(b"x" * (HEAD_BYTES // 4))

        assert_problem(await wire.answer(), 431, "head_too_large")


@pytest.mark.parametrize("sent", [b"", b"\r\n", b"GET /healthz HT", GET], ids=["nothing", "blank", "line", "headers"])
async def test_rel_t9_half_a_head_is_waited_for_only_so_long(sent: bytes) -> None:
    """T9: a connection without a whole head ends; where a request has begun it is told why."""
    async with serving(Hasty) as server:
        wire = await server.connect()
        await wire.send(sent)

        ended = await wire.end()

        assert (b" 408 " in ended) == sent.startswith(b"GET")


async def test_rel_t9_a_second_head_is_waited_for_only_so_long() -> None:
    """T9: the time counts anew for each request of a connection; bytes one by one do not prolong it."""
    async with serving(Hasty) as server:
        wire = await server.connect()
        await wire.send(GET + b"\r\n")
        first = await wire.answer()
        await wire.send(GET)

        assert (200, True) == (first[0], b" 408 " in await wire.end())


async def test_rel_t9_a_body_that_nobody_reads_does_not_keep_a_connection() -> None:
    """T9: answered before its body has come, a request may not go on sending it for ever."""
    async with serving(Hasty) as server:
        wire = await server.connect()
        await wire.send(GET + b"Content-Length: 100\r\n\r\n")
        first = await wire.answer()
        await wire.send(b"x")

        assert (200, b"") == (first[0], await wire.end())


@pytest.mark.parametrize(
    "sent",
    [
        b"FOO / HTTP/1.1\r\nHost: x\r\n\r\n",
        b"GET /\xff HTTP/1.1\r\nHost: x\r\n\r\n",
        b"GET / HTTP/9.9\r\nHost: x\r\n\r\n",
        b"CONNECT x:1 HTTP/1.1\r\nHost: x\r\n\r\n",
        b"POST / HTTP/1.1\r\nContent-Length: x\r\n\r\n",
        b"POST / HTTP/1.1\r\nContent-Length: 1\r\nContent-Length: 2\r\n\r\n",
        b"POST /read HTTP/1.1\r\nTransfer-Encoding: chunked\r\n\r\nzz\r\n",
        b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03",
        b"GET / HTTP/1.1\r\nA B: x\r\n\r\n",
    ],
)
async def test_what_is_no_request_is_a_problem(sent: bytes, caplog: pytest.LogCaptureFixture) -> None:
    """P2: 422 as problem+json, never 400, and not a line in the log."""
    async with serving() as server:
        with caplog.at_level(logging.INFO):
            answer = await server.ask(sent)

        assert_problem(answer, 422, "malformed_request")
        assert [] == caplog.messages


async def test_rubbish_behind_a_request_does_not_take_its_answer() -> None:
    """A request under way is answered as itself; what came behind it ends the connection."""
    async with serving() as server:
        wire = await server.connect()
        await wire.send(b"GET /wait HTTP/1.1\r\n\r\nrubbish\r\n\r\n")
        await server.app.entered.wait()
        server.app.go_on.set()

        answer = await wire.answer()

        assert (200, b"ok", b"") == (answer[0], answer[2], await wire.end())


async def test_an_upgrade_is_answered_as_if_it_were_none(caplog: pytest.LogCaptureFixture) -> None:
    """No other protocol is spoken here, and the log is not told; what comes behind such a request is not read."""
    async with serving() as server:
        wire = await server.connect()
        with caplog.at_level(logging.INFO):
            await wire.send(GET + UPGRADE + b"\r\n" + GET + b"\r\n")
            answer = await wire.answer()
            with contextlib.suppress(ConnectionError):
                await wire.send(GET + b"\r\n")

        assert (200, "close", b"") == (answer[0], answer[1].get("connection"), await wire.end())
        assert [] == caplog.messages


@pytest.mark.parametrize("length", [b"Content-Length: 32\r\n", b"Transfer-Encoding: chunked\r\n"])
@pytest.mark.parametrize("method", [b"GET", b"POST"])
async def test_rel_s3_no_request_hides_in_the_body_of_an_upgrade(method: bytes, length: bytes) -> None:
    """S3: the parser does not read that body, so the request is refused, and what comes next is no request."""
    async with serving() as server:
        wire = await server.connect()
        await wire.send(method + GET[3:] + UPGRADE + length + b"\r\n")
        answer = await wire.answer()
        with contextlib.suppress(ConnectionError):
            await wire.send(GET + b"\r\n")

        assert_problem(answer, 422, "malformed_request")
        assert b"" == await wire.end()


async def test_rubbish_in_a_body_behind_a_request_is_answered_in_its_turn(caplog: pytest.LogCaptureFixture) -> None:
    """Answers come in the order of their requests, whichever of them is broken; the log has no trace of it."""
    async with serving() as server:
        wire = await server.connect()
        await wire.send(b"GET /wait HTTP/1.1\r\n\r\n")
        await server.received.get()
        await wire.send(b"POST /read HTTP/1.1\r\nTransfer-Encoding: chunked\r\n\r\nzz\r\n")
        with caplog.at_level(logging.INFO):
            await server.received.get()
            server.app.go_on.set()

            first, second = await wire.answer(), await wire.answer()

        assert (200, b"ok") == (first[0], first[2])
        assert_problem(second, 422, "malformed_request")
        assert b"" == await wire.end()
        assert [] == caplog.messages


class Counting(Protocol):
    """The protocol, which counts the requests that the parser begins and the most that wait."""

    begun = most = 0

    def on_message_begin(self) -> None:
        """Count a request."""
        super().on_message_begin()
        Counting.begun += 1

    def on_headers_complete(self) -> None:
        """Count the requests that wait."""
        super().on_headers_complete()
        Counting.most = max(Counting.most, len(self.pipeline))


@pytest.mark.parametrize("first", [b"/wait", b"/large"], ids=["under way", "not read"])
@pytest.mark.parametrize("last", [b"GET / HTTP/1.1\r\n\r\n", b"POST / HTTP/1.1\r\nContent-Length: 9\r\n\r\n123456789"])
async def test_rel_t9_only_so_many_requests_of_a_connection_wait(
    first: bytes, last: bytes, monkeypatch: pytest.MonkeyPatch
) -> None:
    """T9: requests that wait for an answer before theirs are bounded; none of the others is parsed or answered."""
    monkeypatch.setattr(Counting, "begun", 0)
    monkeypatch.setattr(Counting, "most", 0)
    async with serving(Counting) as server:
        wire = await server.connect()
        await wire.send(b"GET " + first + b" HTTP/1.1\r\n\r\n")
        await server.received.get()
        await wire.send(last * 100)
        await server.received.get()
        begun = Counting.begun
        server.app.go_on.set()

        answers = [await wire.answer() for _ in range(1 + PIPELINED)]

        assert (PIPELINED, 1 + PIPELINED + 1) == (Counting.most, begun)
        assert [200] * (1 + PIPELINED) == [answer[0] for answer in answers]
        assert [None] * PIPELINED + ["close"] == [answer[1].get("connection") for answer in answers]
        assert b"" == await wire.end()
        assert begun == Counting.begun


TCP_ESTABLISHED = 1


class Impatient(Protocol):
    """The protocol, with a patience for readers that a test can await."""

    take_s = 0.05


@pytest.mark.parametrize("headers", [b"", b"Connection: close\r\n"], ids=["kept", "closed"])
async def test_rel_s8_a_reader_that_takes_nothing_is_dropped(headers: bytes) -> None:
    """S8: an answer that nobody reads does not stay in memory, nor does its connection, closed or not."""
    async with serving(Impatient) as server:
        wire = await server.connect()
        wire.stop_reading()
        await wire.send(b"GET /large HTTP/1.1\r\n" + headers + b"\r\n")

        await server.lost.wait()

        assert TCP_ESTABLISHED != wire.state  # the system keeps no rest of the answer for it either


@pytest.mark.parametrize("behind", [b"", GET + b"\r\n"], ids=["alone", "with a request behind"])
async def test_rel_s8_a_stream_that_nobody_reads_is_dropped(behind: bytes, caplog: pytest.LogCaptureFixture) -> None:
    """S8: a stream ends when its reader takes nothing, though it is never complete; the log has no trace of it."""
    async with serving(Impatient) as server:
        wire = await server.connect()
        wire.stop_reading()
        with caplog.at_level(logging.INFO):
            await wire.send(b"GET /stream HTTP/1.1\r\n\r\n" + behind)

            await server.lost.wait()
            await asyncio.gather(*server.state.tasks)

        assert [] == caplog.messages


@pytest.mark.parametrize(("left", "is_aborted"), [(100, True), (120, True), (99, False), (0, False)])
async def test_a_slow_reader_is_waited_for(left: int, is_aborted: bool) -> None:
    """A reader that has taken something within the time goes on, however slow it is."""
    config = uvicorn.Config(App(), http=Protocol, ws="none", lifespan="off", log_config=None)
    protocol = Protocol(config, ServerState(), {})
    transport = Mock(**{"get_write_buffer_size.return_value": 100, "get_extra_info.return_value": None})
    protocol.connection_made(transport)
    protocol.pause_writing()

    transport.get_write_buffer_size.return_value = left
    protocol._look_at_reader(100)

    assert is_aborted == transport.abort.called
    protocol.connection_lost(None)


class Brisk(Protocol):
    """The protocol, which has no time for a whole answer, though a reader need not take any of it soon."""

    take_s = 600.0

    def time_for(self, size: int) -> float:
        """Return next to nothing."""
        return 0.05


@pytest.mark.parametrize("headers", [b"", b"Connection: close\r\n"], ids=["kept", "closed"])
async def test_rel_s8_an_answer_that_is_taken_too_slowly_is_dropped(headers: bytes) -> None:
    """S8: a whole answer has its time, however often its reader takes a little."""
    async with serving(Brisk) as server, asyncio.timeout(10):
        wire = await server.connect()
        wire.stop_reading()
        await wire.send(b"GET /large HTTP/1.1\r\n" + headers + b"\r\n")

        await server.lost.wait()


class Timer:
    """Something that is to be called later."""

    def __init__(self, delay_s: float, callback: Callable[..., None], *given: Any) -> None:
        self.delay_s, self.callback, self.given = delay_s, callback, given
        self.is_cancelled = False

    def cancel(self) -> None:
        """Do not call it."""
        self.is_cancelled = True


class Sending(Protocol):
    """A connection with an answer of 8 MiB under way, of which 100 bytes wait to be sent; its timers are a list."""

    def __init__(self, *, is_stream: bool = False) -> None:
        super().__init__(uvicorn.Config(App(), ws="none", lifespan="off", log_config=None), ServerState(), {})
        self.connection_made(Mock(**{"get_extra_info.return_value": None, "is_closing.return_value": False}))
        self.timers: list[Timer] = []
        self.loop = Mock(call_later=self._call_later)
        self.answer = Mock(chunked_encoding=is_stream, response_complete=False)
        self.answer.expected_content_length = 0 if is_stream else (8 << 20) - 100
        self.cycle = self._running = self.answer
        self.wait_for(100)

    def wait_for(self, size: int) -> None:
        """Let so many bytes wait to be sent."""
        cast(Mock, self.transport).get_write_buffer_size.return_value = size

    def pass_time(self, delay_s: float) -> bool:
        """Call what is due after exactly so long; say whether the connection was aborted."""
        for timer in [timer for timer in self.timers if timer.delay_s == delay_s and not timer.is_cancelled]:
            timer.callback(*timer.given)
        return bool(cast(Mock, self.transport).abort.called)

    def _call_later(self, *given: Any) -> Timer:
        self.timers.append(Timer(*given))
        return self.timers[-1]


WHOLE_S = TAKE_S + (8 << 20) / LEAST_PACE


async def test_rel_s8_a_reader_that_takes_a_byte_now_and_then_is_dropped() -> None:
    """S8: 30 s and a second for each 64 KiB; that it takes something, or that writing goes on, gives no more time."""
    sending = Sending()
    sending.pause_writing()
    for left in (99, 98):
        sending.wait_for(left)
        assert not sending.pass_time(TAKE_S)
    sending.resume_writing()
    sending.pause_writing()

    deadlines = [timer for timer in sending.timers if timer.delay_s > TAKE_S]

    assert [WHOLE_S] == [timer.delay_s for timer in deadlines]
    assert sending.pass_time(WHOLE_S)


@pytest.mark.parametrize("is_paused", [True, False], ids=["with some left", "all"])
async def test_an_answer_that_was_taken_in_time_ends_nothing(is_paused: bool) -> None:
    """The time is over with the answer: the next one of the connection has its own."""
    sending = Sending()
    sending.pause_writing()
    if not is_paused:
        sending.resume_writing()
    sending.answer.response_complete = True
    sending.on_response_complete()
    if is_paused:
        sending.resume_writing()

    assert not sending.pass_time(WHOLE_S)
    sending.cycle = sending._running = Mock(chunked_encoding=False, response_complete=False, expected_content_length=0)
    sending.pause_writing()
    assert TAKE_S + 100 / LEAST_PACE == max(timer.delay_s for timer in sending.timers if not timer.is_cancelled)


@pytest.mark.parametrize("is_stream", [True, False], ids=["stream", "whole"])
@pytest.mark.parametrize("is_closing", [True, False], ids=["closed", "kept"])
async def test_rel_s8_the_rest_of_an_answer_has_its_time(is_closing: bool, is_stream: bool) -> None:
    """S8: also what was handed over whole must be taken, or its connection would stay; the end of a stream, too."""
    sending = Sending(is_stream=is_stream)
    sending.answer.expected_content_length = 0
    if not is_closing:
        sending.pause_writing()
    sending.answer.response_complete = True
    cast(Mock, sending.transport).is_closing.return_value = is_closing
    sending.on_response_complete()
    sending.wait_for(99)

    assert not sending.pass_time(TAKE_S)
    assert sending.pass_time(TAKE_S + 100 / LEAST_PACE)


async def test_a_stream_may_last() -> None:
    """A stream has no end to be waited for; its reader must only take something."""
    sending = Sending(is_stream=True)
    sending.pause_writing()

    assert {TAKE_S} == {timer.delay_s for timer in sending.timers}


async def test_rel_t9_idle_connections_lock_nobody_out() -> None:
    """T9: at the cap the connection that waited longest makes room; others stay."""
    async with serving(cap=3) as server:
        idle = [await server.connect() for _ in range(3)]
        for wire in idle:
            await wire.send(b"GET /healthz HT")

        answer = await server.ask(GET + b"\r\n")

        assert 200 == answer[0]
        assert b"" == await idle[0].end()
        await idle[2].send(b"TP/1.1\r\n\r\n")
        assert 200 == (await idle[2].answer())[0]


async def test_rel_t9_at_the_cap_a_caller_is_told_to_come_back(caplog: pytest.LogCaptureFixture) -> None:
    """P2: where every connection is at work the answer is a problem, 503 with Retry-After, and no log line."""
    async with serving(cap=1) as server:
        busy = await server.connect()
        await busy.send(b"GET /wait HTTP/1.1\r\n\r\n")
        await server.app.entered.wait()

        with caplog.at_level(logging.INFO):
            answer = await server.ask(GET + b"\r\n")
        server.app.go_on.set()

        assert_problem(answer, 503, "unavailable")
        assert "1" == answer[1]["retry-after"]
        assert [] == caplog.messages
        assert 200 == (await busy.answer())[0]
