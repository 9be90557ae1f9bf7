"""Broken framing: connections whose bytes are no proper requests, and how many answers each may get at most.

A proxy in front counts requests by the rules of HTTP. A server that counts more of them than the proxy answers one
caller with what another was meant to get. So each form says how many requests it stands for; there are never more
answers, none is 500 or above, and a body is never answered as if it were a request.
"""

from __future__ import annotations

import asyncio
import ssl
from collections.abc import Iterator, Sequence
from contextlib import suppress
from itertools import product

import msgspec

from tests.fuzz.caller import Answer, Tally, read_answer
from windlass.server.protocol import PIPELINED

QUIET_S = 0.5
"""After the last byte was sent, and after each answer, so long is waited for another one."""
PATIENCE_S = 14.0
"""A head and a body must have come within ten seconds."""
AT_ONCE = 48
INNER = b"GET /version HTTP/1.1\r\nHost: inner\r\n\r\n"
"""A request that stands where a body should: an answer to it is a smuggled one."""


class Form(msgspec.Struct, frozen=True):
    """Bytes in segments, each sent when the server has had time for the one before; what they may lead to."""

    name: str
    segments: Sequence[bytes]
    most: int
    """Answers at most."""
    patience_s: float = QUIET_S
    tls: bool = False
    first: tuple[int, ...] = ()
    """Statuses of the first answer; none: any."""


def forms(key: bytes) -> list[Form]:
    """Return every form."""
    return [
        *_lengths(key),
        *_encodings(key),
        *_chunks(key),
        *_upgrades(key),
        *_heads(),
        *_pipelines(key),
        *_halves(key),
        *_rubbish(),
    ]


def _post(key: bytes, headers: bytes, body: bytes = b"", *, method: bytes = b"POST") -> bytes:
    path = b"/healthz" if method == b"GET" else b"/api/v1/jobs"
    return method + b" " + path + b" HTTP/1.1\r\nHost: x\r\n" + key + b"\r\n" + headers + b"\r\n" + body


def _lengths(key: bytes) -> Iterator[Form]:
    size = str(len(INNER)).encode()
    values = [
        *(
            b"-1",
            b"+1",
            b"+" + size,
            b"0x10",
            b"1e1",
            b"1.0",
            b"1,1",
            b" ",
            b"",
            b"a",
            b"1 1",
            b"\xb2",
            b"1_0",
            b"00",
            b"01",
        ),
        *(
            b"9" * 20,
            b"9" * 400,
            b"18446744073709551616",
            b"9223372036854775807",
            b"4294967296",
            b"8388609",
            b"1048577",
        ),
        *(size + b", " + size, size + b";q=1", b'"' + size + b'"', b"0" * 50 + size, size + b"\x0b", b"\x00" + size),
    ]
    for method, value in product((b"POST", b"GET", b"DELETE"), values):
        head = _post(key, b"Content-Length: " + value + b"\r\n", method=method)
        # Where a length is refused nothing behind it is read; where it is taken, the rest is its body.
        yield Form(f"{method.decode()} length {value[:24]!r}", (head + INNER,), 2 if value in (b"00", b"", b" ") else 1)
    for first, second, apart in product((b"0", size, b"5"), (b"0", size, b"5"), (False, True)):
        if first != second:
            both = b"Content-Length: " + first + b"\r\nContent-Length: " + second + b"\r\n"
            sent = (_post(key, both), INNER) if apart else (_post(key, both, INNER),)
            yield Form(f"two lengths {first!r} {second!r}", sent, 1)


ENCODINGS: list[bytes] = [
    *(b"chunked", b"Chunked", b" chunked", b"chunked ", b"\tchunked", b"cHuNkEd", b"xchunked", b"chunked, identity"),
    *(b"identity, chunked", b"chunked, chunked", b"identity", b"gzip", b"gzip, chunked", b'"chunked"', b"chunked;q=1"),
    *(b"chunked\x0b", b"\x00chunked", b"", b"chun ked", b"chunked\x00", b"x", b"chunked,", b",chunked", b"trailers"),
]
REALLY_CHUNKED = ENCODINGS[:6]
ENCODING_NAMES = (
    *(b"Transfer-Encoding: ", b"transfer-encoding:", b"Transfer-Encoding : ", b"Transfer_Encoding: "),
    b"X: y\r\n Transfer-Encoding: ",
)


def _encodings(key: bytes) -> Iterator[Form]:
    """CL.TE and TE.CL: whoever counts by the other header sees the inner request."""
    lengths = (b"", b"Content-Length: %d\r\n" % len(INNER), b"Content-Length: 5\r\n")
    for encoding, name, length in product(ENCODINGS, ENCODING_NAMES, lengths):
        if name != ENCODING_NAMES[0] and encoding not in ENCODINGS[:3]:
            continue
        head = _post(key, length + name + encoding + b"\r\n")
        both = length and encoding in REALLY_CHUNKED and name in ENCODING_NAMES[:2]
        yield Form(f"{name!r}{encoding!r} {length!r}", (head + b"0\r\n\r\n" + INNER,), 1 if both else 2)
        if length:
            yield Form(f"{name!r}{encoding!r} {length!r}, a body", (head + INNER,), 1 if both else 2)


CHUNK_SIZES: list[bytes] = [
    *(
        b"-1",
        b"+5",
        b"0x5",
        b" 5",
        b"5 ",
        b"5;a=b",
        b"5;" + b"a" * 70_000,
        b"5\t",
        b"ffffffffffffffff",
        b"1" + b"0" * 17,
    ),
    *(b"G", b"", b"\r", b"5_0"),
]


def _chunks(key: bytes) -> Iterator[Form]:
    head = _post(key, b"Transfer-Encoding: chunked\r\n")
    for chunk in CHUNK_SIZES:
        yield Form(f"a chunk of {chunk[:20]!r}", (head + chunk + b"\r\nhello\r\n0\r\n\r\n",), 1)
    for end in (
        b"\n",
        b"\r",
        b"",
        b"\r\nX: y\r\n\r\n",
        b"0\r\n\r\n",
        b"\r\n" + b"a: b\r\n" * 500 + b"\r\n",
        b"x\r\n\r\n",
    ):
        yield Form(f"an end of chunks {end[:12]!r}", (head + b"5\r\nhello\r\n0" + end,), 2)


def _upgrades(key: bytes) -> Iterator[Form]:
    size = str(len(INNER)).encode()
    protocols = (b"h2c", b"websocket", b"HTTP/2.0", b"TLS/1.0", b"x", b"")
    for method, protocol, how, apart in product(
        (b"GET", b"POST"), protocols, ("length", "chunked", "none"), (True, False)
    ):
        headers = b"Connection: upgrade\r\nUpgrade: " + protocol + b"\r\n"
        body = b""
        if how == "length":
            headers, body = headers + b"Content-Length: " + size + b"\r\n", INNER
        if how == "chunked":
            chunk = b"%x\r\n" % len(INNER) + INNER + b"\r\n0\r\n\r\n"
            headers, body = headers + b"Transfer-Encoding: chunked\r\n", chunk
        head = _post(key, headers, method=method)
        yield Form(
            f"{method.decode()} upgrade {protocol!r} {how}", (head, body) if apart and body else (head + body,), 1
        )
    yield Form("the preface of HTTP/2", (b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n",), 1)
    yield Form("CONNECT", (b"CONNECT x:80 HTTP/1.1\r\nHost: x\r\n\r\n" + INNER,), 1)


GET = b"GET /healthz HTTP/1.1\r\nHost: x\r\n"
LINES: list[bytes] = [
    *(
        b"GET /healthz\r\n\r\n",
        b"GET /healthz HTTP/0.9\r\n\r\n",
        b"GET /healthz HTTP/1.0\r\n\r\n",
        b"GET / HTTP/9.9\r\n\r\n",
    ),
    *(b"GET /healthz HTTP/1.1\n\n", b"GET  /healthz HTTP/1.1\r\n\r\n", b"GET /healthz HTTP/1.1 \r\n\r\n"),
    *(b"get /healthz HTTP/1.1\r\n\r\n", b"GET healthz HTTP/1.1\r\n\r\n", b"GET http://x/healthz HTTP/1.1\r\n\r\n"),
    *(b"GET * HTTP/1.1\r\n\r\n", b"GET /\x00 HTTP/1.1\r\n\r\n", b"GET /\xff HTTP/1.1\r\nHost: x\r\n\r\n"),
    *(
        b"GET /healthz#a HTTP/1.1\r\nHost: x\r\n\r\n",
        b"GET //healthz HTTP/1.1\r\nHost: x\r\n\r\n",
        b"\r\n\r\n" + GET + b"\r\n",
    ),
    *(b" " + GET + b"\r\n", b"\x00" + GET + b"\r\n", b"GET /" + b"a" * 70_000 + b" HTTP/1.1\r\n\r\n"),
    *(GET + b": y\r\n\r\n", b"GET / HTTP/1.1\r\nHost\r\n\r\n", b"GET / HTTP/1.1\r\nHo st: x\r\n\r\n"),
]
HOSTS: list[bytes] = [
    *(b"Host:", b"Host: x\r\nHost: y", b"Host: x, y", b"Host: \xff", b"Host: x@y", b"Host: x:99999", b"Host: [::1"),
    b"Host: " + b"h" * 5_000,
]


def _heads() -> Iterator[Form]:
    for line in LINES:
        yield Form(f"line {line[:30]!r}", (line,), 1)
    for host in HOSTS:
        yield Form(f"{host[:20]!r}", (b"GET /healthz HTTP/1.1\r\n" + host + b"\r\n\r\n",), 1)
    for name in (b"X\x00", b"X\x7f", b"X\xff", b"X Y", b"X\t", b"(x)", b"X:Y", b"\xc3\xa9", b"\x0b"):
        for value in (b"y", b"\x00", b"\x01", b"a\rb", b"a\nb", b"a\r\n b", b"a\r\n\tb"):
            yield Form(f"header {name!r} {value!r}", (GET + name + b": " + value + b"\r\n\r\n",), 1)
    for count, length in ((199, 1), (201, 1), (10_000, 1), (1, 65_000), (1, 66_000), (1, 1_000_000), (100, 1_000)):
        many = b"".join(b"X-%d: %s\r\n" % (number, b"a" * length) for number in range(count))
        yield Form(f"{count} headers of {length}", (GET + many + b"\r\n",), 1)


def _pipelines(key: bytes) -> Iterator[Form]:
    get = b"GET /healthz HTTP/1.1\r\nHost: x\r\n\r\n"
    poll = _post(key, b"Content-Type: application/json\r\nContent-Length: 27\r\n", b'{"worker_id":"w","wait":1}\n')
    poll = poll.replace(b"/api/v1/jobs ", b"/api/v1/jobs/claim ")
    for count in (2, 3, 10, 100, 1_000):
        yield Form(f"{count} requests at once", (get * count,), min(count, 1 + PIPELINED), 2.0)
    large, small = b"GET /openapi.json HTTP/1.1\r\n\r\n", b"GET / HTTP/1.1\r\n\r\n"
    for count in (1, 4, PIPELINED, 2 * PIPELINED):
        # As many as a server reads at a time, behind answers of which nothing is read yet.
        many = small * ((256 << 10) // len(small) - 2 * count)
        yield Form(f"many requests behind {count} large answers", (large * count + many,), 1 + PIPELINED, 2.0)
    chunked = _post(key, b"Content-Type: application/json\r\nTransfer-Encoding: chunked\r\n")
    for broken in (
        chunked + b"ZZ\r\n",
        b"BROKEN\r\n\r\n",
        b"GET / HTTP/9\r\n\r\n",
        b"\x00\x01\x02",
        b"GET / HTTP/1.1\r\nContent-Length: x\r\n\r\n",
    ):
        yield Form(f"a request, then {broken[-10:]!r}", (get + broken,), 2)
        yield Form(f"a long poll, then {broken[-10:]!r}", (poll, broken), 2, 2.0, first=(200, 204))
    yield Form("a long poll, then a request", (poll + get,), 2, 3.0, first=(200, 204))
    yield Form("many long polls at once", (poll * 5,), 5, 7.0)


def _halves(key: bytes) -> Iterator[Form]:
    head = _post(key, b"Content-Type: application/json\r\nContent-Length: 1000\r\n")
    for cut in (0, 1, 4, 14, 40, len(head) - 2, len(head), len(head) + 1):
        yield Form(f"{cut} bytes, then nothing", ((head + b"{")[:cut],) if cut else (), 1, PATIENCE_S)
    chunked = _post(key, b"Content-Type: application/json\r\nTransfer-Encoding: chunked\r\n")
    for rest in (b"", b"5", b"5\r\n", b"5\r\nhel", b"5\r\nhello\r\n", b"5\r\nhello\r\n0\r\n"):
        yield Form(f"half chunks {rest!r}", (chunked + rest,), 1, PATIENCE_S)
    yield Form(
        "100-continue, then nothing", (head.replace(b"\r\n\r\n", b"\r\nExpect: 100-continue\r\n\r\n"),), 2, PATIENCE_S
    )


def _rubbish() -> Iterator[Form]:
    yield Form("a TLS handshake to the plain port", (), 1, tls=True)
    texts = (
        b"\x16\x03\x01\x02\x00\x01\x00",
        b"SSH-2.0-x\r\n",
        b"\x00" * 70_000,
        b"\xff" * 70_000,
        b"\r\n" * 40_000,
        b"A" * 70_000,
    )
    for text in (
        *texts,
        b"*1\r\n$4\r\nPING\r\n",
        b"\x03\x00\x00\x13\x0e\xe0",
        b"EHLO x\r\n",
        b"\x80\x80\x01\x03\x01",
        b"{}\n",
    ):
        yield Form(f"rubbish {text[:12]!r}", (text,), 1)


async def send_all(shapes: Sequence[Form], address: tuple[str, int], tally: Tally) -> None:
    """Send every form over a connection of its own; count the answers."""
    room = asyncio.Semaphore(AT_ONCE)

    async def one(form: Form) -> None:
        async with room:
            await _send(form, address, tally)

    await asyncio.gather(*(one(form) for form in shapes))


async def _send(form: Form, address: tuple[str, int], tally: Tally) -> None:
    tally.sent += 1
    if form.tls:
        context = ssl.create_default_context()
        with suppress(OSError, EOFError, TimeoutError):
            async with asyncio.timeout(PATIENCE_S):
                await asyncio.open_connection(*address, ssl=context, server_hostname="localhost")
        return
    reader, writer = await asyncio.open_connection(*address, limit=1 << 20)
    answers: list[Answer] = []
    try:
        for number, segment in enumerate(form.segments):
            writer.write(segment)
            with suppress(OSError):
                await writer.drain()
            if number < len(form.segments) - 1:
                await _read(reader, answers, QUIET_S, bodiless=False)
        await _read(reader, answers, form.patience_s, bodiless=False)
    finally:
        writer.transport.abort()
    final = [answer for answer in answers if answer.status >= 200]
    for answer in final:
        tally.keep(form.name, answer, 0.0)
    if form.first and (not final or final[0].status not in form.first):
        tally.fault(f"{[answer.status for answer in final]}, and not first {form.first}: {form.name}")
    if len(final) > form.most:
        tally.fault(f"{len(final)} answers where {form.most} may be: {form.name}")


async def _read(reader: asyncio.StreamReader, answers: list[Answer], quiet_s: float, *, bodiless: bool) -> None:
    """Read answers until the connection ends, or nothing comes for so long."""
    with suppress(TimeoutError, OSError, EOFError):
        while True:
            async with asyncio.timeout(quiet_s):
                answers.append(await read_answer(reader, bodiless=bodiless))
