"""TLS by configuration: a certificate, with which clients that trust its authority come in."""

from __future__ import annotations

import signal

import httpx2
import pytest

from tests.proofs.processes import PATIENCE_S, server_arguments
from tests.server.conftest import Papers
from tests.server.process.conftest import Launch

FILE = "sqlite:///windlass.db"


async def test_rel_t14_a_server_speaks_tls(launch: Launch, papers: Papers) -> None:
    """With a certificate it serves HTTPS to those who trust its authority, and nobody in the clear."""
    server = await launch(*server_arguments(FILE), security_tls_cert=str(papers.cert), security_tls_key=str(papers.key))

    url = await server.serving()

    assert url.startswith("https://")
    async with httpx2.AsyncClient(base_url=url, verify=papers.client(), timeout=PATIENCE_S) as client:
        assert 200 == (await client.get("/readyz")).status_code
    async with httpx2.AsyncClient(base_url=url, timeout=PATIENCE_S) as stranger:
        with pytest.raises(httpx2.ConnectError):
            await stranger.get("/readyz")
    async with httpx2.AsyncClient(base_url=url.replace("https", "http"), timeout=PATIENCE_S) as clear:
        with pytest.raises(httpx2.HTTPError):
            await clear.get("/readyz")


async def test_a_certificate_that_cannot_be_read_is_named(launch: Launch, papers: Papers) -> None:
    """A wrong file ends the start with its name and exit code 1, without a traceback."""
    papers.key.write_text("nonsense")
    server = await launch(*server_arguments(FILE), security_tls_cert=str(papers.cert), security_tls_key=str(papers.key))

    code = await server.ended()

    assert 1 == code
    assert "Traceback" not in server.text
    assert str(papers.cert) in server.lines[-1]


async def test_rel_d13_a_certificate_is_renewed_without_a_restart(launch: Launch, papers: Papers) -> None:
    """D13: SIGHUP reads the files anew, for new connections; a certificate that is broken leaves the one before."""
    server = await launch(*server_arguments(FILE), security_tls_cert=str(papers.cert), security_tls_key=str(papers.key))
    url = await server.serving()

    async def served() -> int:
        async with httpx2.AsyncClient(base_url=url, verify=papers.client(), timeout=PATIENCE_S) as client:
            return (await client.get("/readyz")).status_code

    statuses = [await served()]
    papers.issue()
    server.send(signal.SIGHUP)
    await server.said("server.certificate_read")
    statuses.append(await served())
    papers.key.write_text("nonsense")
    server.send(signal.SIGHUP)
    await server.said("server.certificate_kept")
    statuses.append(await served())

    assert [200, 200, 200] == statuses
