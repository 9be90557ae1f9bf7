"""TLS by configuration: a certificate, with which clients that trust its authority come in."""

from __future__ import annotations

import ssl
from pathlib import Path

import httpx2
import pytest
import trustme

from tests.proofs.processes import PATIENCE_S, server_arguments
from tests.server.process.conftest import Launch

FILE = "sqlite:///windlass.db"


class Papers:
    """An authority, and the server's certificate as files."""

    def __init__(self, folder: Path) -> None:
        self.authority = trustme.CA()
        certificate = self.authority.issue_cert("127.0.0.1")
        self.cert, self.key = folder / "server.pem", folder / "server.key"
        certificate.private_key_pem.write_to_path(self.key)
        self.cert.write_bytes(b"".join(blob.bytes() for blob in certificate.cert_chain_pems))

    def client(self) -> ssl.SSLContext:
        """Return what a client needs: trust in the server."""
        context = ssl.create_default_context()
        self.authority.configure_trust(context)
        return context


@pytest.fixture
def papers(tmp_path_factory: pytest.TempPathFactory) -> Papers:
    """Certificates for one test."""
    return Papers(tmp_path_factory.mktemp("papers"))


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
