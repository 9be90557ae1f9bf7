"""TLS: the certificate, read anew when its files change, and the handshake before a connection is one of HTTP.

A handshake counts among the connections from its first byte, has a time-out, and makes room like a connection without
a request: who only opens connections must not be able to lock others out.
A certificate that cannot be read leaves the one before it in use.
"""

from __future__ import annotations

import asyncio
import logging
import socket
import ssl
from collections.abc import Callable
from pathlib import Path
from typing import Any

from windlass import log
from windlass.errors import SetupError
from windlass.server.protocol import Protocol, enter, leave

HANDSHAKE_S = 10.0
PAUSE_S = 0.1
"""After a connection could not be accepted."""
LOOK_S = 5.0
"""How often the files of the certificate are looked at, at most."""
CIPHERS = "ECDHE+AESGCM:ECDHE+CHACHA20"
"""Of TLS 1.2; those of 1.3 are all of this kind."""

logger = logging.getLogger("windlass")


class Certificates:
    """The certificate of a server and its key, as they are on disk."""

    def __init__(self, cert: str, key: str, *, now: float) -> None:
        """SetupError if they cannot be used; `now` is in seconds of a monotonic clock."""
        self._cert, self._key = cert, key
        self._seen = self._stamps()
        self._looked_at = now
        try:
            self._context = self._load()
        except OSError as error:
            raise SetupError(
                f"The certificate {cert} with key {key} cannot be used: {error}. Check security.tls_cert and tls_key."
            ) from error

    def current(self, now: float) -> ssl.SSLContext:
        """Return what a new connection is to use; the files are looked at now and then."""
        if now - self._looked_at >= LOOK_S:
            self._looked_at = now
            if self._stamps() != self._seen:
                self.reload()
        return self._context

    def reload(self) -> None:
        """Read the certificate anew for new connections; one that cannot be used leaves the old one."""
        self._seen = self._stamps()
        try:
            self._context = self._load()
        except OSError as error:
            log.event("server.certificate_kept", certificate=self._cert, error=error)
        else:
            log.event("server.certificate_read", certificate=self._cert)

    def _load(self) -> ssl.SSLContext:
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        context.minimum_version = ssl.TLSVersion.TLSv1_2
        context.set_ciphers(CIPHERS)
        # A key with a password is an error, instead of a question at the terminal.
        context.load_cert_chain(self._cert, self._key, password="")
        return context

    def _stamps(self) -> list[tuple[int, int, int] | None]:
        return [_stamp(Path(self._cert)), _stamp(Path(self._key))]


def _stamp(path: Path) -> tuple[int, int, int] | None:
    try:
        found = path.stat()
    except OSError:
        return None
    return found.st_ino, found.st_size, found.st_mtime_ns


class TlsListener:
    """Accepts connections that begin with a handshake. The listener of the event loop would not count these."""

    handshake_s = HANDSHAKE_S

    def __init__(self, listener: socket.socket, certificates: Certificates, make: Callable[[], Protocol]) -> None:
        """Begin to accept; `make` returns the protocol of a new connection."""
        self._listener = listener
        self._certificates = certificates
        self._make = make
        self._loop = asyncio.get_running_loop()
        self._accepting = self._loop.create_task(self._accept(), name="accept")

    def close(self) -> None:
        """Accept no more."""
        self._accepting.cancel()

    async def _accept(self) -> None:
        while True:
            try:
                accepted, _ = await self._loop.sock_accept(self._listener)
            except OSError:
                await asyncio.sleep(PAUSE_S)  # out of files: asking again at once would fail again
                continue
            try:
                context = self._certificates.current(self._loop.time())
                Handshake(accepted, context, self._make(), timeout_s=self.handshake_s)
            except Exception:
                # One connection that cannot be served must not be the end of all others.
                logger.exception("A connection could not be accepted.")
                accepted.close()


class Handshake:
    """A connection until its handshake is done; then it is the protocol's."""

    def __init__(
        self, accepted: socket.socket, context: ssl.SSLContext, protocol: Protocol, *, timeout_s: float
    ) -> None:
        self._socket = accepted
        self._state = protocol.server_state
        protocol.handshake = self
        self._task = protocol.loop.create_task(
            protocol.loop.connect_accepted_socket(
                lambda: protocol, accepted, ssl=context, ssl_handshake_timeout=timeout_s
            )
        )
        self._task.add_done_callback(self._ended)
        enter(self, self._state, protocol.cap)

    def make_room(self) -> None:
        """End at once."""
        leave(self, self._state)
        self._task.cancel()

    shutdown = make_room

    def _ended(self, task: asyncio.Task[Any]) -> None:
        leave(self, self._state)
        # No TLS, no common cipher, too late, gone: nobody is there to be told.
        if task.cancelled() or task.exception() is not None:
            self._socket.close()
