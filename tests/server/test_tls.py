"""TLS: certificates that change on disk, and handshakes that never come. No database is asked."""

from __future__ import annotations

import asyncio
import logging
import ssl

import pytest

from tests.server.conftest import Papers
from tests.server.test_protocol import Impatient
from tests.server.wires import GET, serving
from windlass.server.tls import LOOK_S, Certificates, Handshake, TlsListener


@pytest.fixture
def certificates(papers: Papers) -> Certificates:
    """The certificate of a server, read at the time 0."""
    return Certificates(str(papers.cert), str(papers.key), now=0.0)


class Hasty(TlsListener):
    """Handshakes with a patience that a test can await."""

    handshake_s = 0.2


async def test_requests_over_tls_are_answered(papers: Papers, certificates: Certificates) -> None:
    """A request that comes with the end of the handshake is answered, and so is the next one."""
    async with serving(certificates=certificates) as server:
        wire = await server.connect(papers.client())
        statuses = []
        for _ in range(2):
            await wire.send(GET + b"\r\n")
            statuses.append((await wire.answer())[0])

        assert [200, 200] == statuses
        assert 1 == len(server.state.connections)


@pytest.mark.parametrize("sent", [b"", b"\x16\x03\x01", b"GET / HTTP/1.1\r\n\r\n"], ids=["nothing", "half", "clear"])
async def test_rel_t9_a_handshake_is_waited_for_only_so_long(certificates: Certificates, sent: bytes) -> None:
    """T9: a connection without a handshake ends, and is counted no more."""
    async with serving(certificates=certificates, encrypted=Hasty) as server:
        wire = await server.connect()
        await wire.send(sent)

        await wire.end()
        handshakes = [each._task for each in server.state.connections if isinstance(each, Handshake)]
        await asyncio.gather(*handshakes, return_exceptions=True)

        assert 0 == len(server.state.connections)


async def test_rel_t9_handshakes_that_never_come_lock_nobody_out(papers: Papers, certificates: Certificates) -> None:
    """T9: they count among the connections, and at the cap the oldest makes room."""
    async with serving(cap=3, certificates=certificates) as server:
        silent = [await server.connect() for _ in range(3)]

        wire = await server.connect(papers.client())
        await wire.send(GET + b"\r\n")

        assert 200 == (await wire.answer())[0]
        assert b"" == await silent[0].end()
        assert 3 == len(server.state.connections)


async def test_rel_s8_a_reader_over_tls_that_takes_nothing_is_dropped(
    papers: Papers, certificates: Certificates
) -> None:
    """S8: what waits below the encryption is seen too."""
    async with serving(Impatient, certificates=certificates) as server:
        wire = await server.connect(papers.client())
        wire.stop_reading()
        await wire.send(b"GET /large HTTP/1.1\r\n\r\n")

        await server.lost.wait()


async def test_rel_d13_a_certificate_that_changes_is_read(papers: Papers, certificates: Certificates) -> None:
    """D13: without a signal too, and the files are looked at once in some seconds only."""
    first = certificates.current(0.0)
    papers.issue()

    soon, later = certificates.current(LOOK_S - 0.1), certificates.current(LOOK_S)

    assert (first is soon, first is later) == (True, False)
    assert later is certificates.current(3 * LOOK_S)


async def test_rel_d13_a_certificate_that_is_broken_is_not_taken(
    papers: Papers, certificates: Certificates, caplog: pytest.LogCaptureFixture
) -> None:
    """D13: the one before stays in use, with one line in the log for each change."""
    first = certificates.current(0.0)
    papers.key.write_text("nonsense")

    with caplog.at_level(logging.WARNING):
        kept = [certificates.current(n * LOOK_S) for n in range(1, 4)]

    assert [first] * 3 == kept
    assert 1 == len(caplog.messages)


async def test_rel_t14_old_ciphers_are_not_spoken(papers: Papers, certificates: Certificates) -> None:
    """T14: TLS 1.2 and newer, and only ciphers that encrypt and authenticate in one."""
    context = certificates.current(0.0)
    old = papers.client()
    old.maximum_version = ssl.TLSVersion.TLSv1_2
    old.set_ciphers("AES256-SHA:ECDHE-RSA-AES256-SHA:ECDHE-ECDSA-AES256-SHA")

    async with serving(certificates=certificates) as server:
        with pytest.raises((ssl.SSLError, ConnectionError)):
            await server.connect(old)

    assert ssl.TLSVersion.TLSv1_2 == context.minimum_version
    assert all(cipher["aead"] for cipher in context.get_ciphers())


async def test_a_server_that_stops_ends_handshakes(papers: Papers, certificates: Certificates) -> None:
    """A handshake under way does not hold a stop up."""
    async with serving(certificates=certificates) as server:
        wire = await server.connect()
        await server.connect(papers.client())  # by now the first one is known

        for connection in list(server.state.connections):
            connection.shutdown()

        assert b"" == await wire.end()
