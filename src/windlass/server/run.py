"""Run one server: open the database, start the engine, listen, and stop in order.

The port is open before the database answers: until then the server lives and is not ready. An empty database is set up
by itself; one whose schema is older is left to `windlass migrate`, so that a deployment decides when.
SIGTERM drains: `/readyz` fails, long polls are answered, duties go to others, requests under way finish, exit 0.
SIGINT does the same without waiting for a load balancer to notice; a second signal ends at once.
SIGHUP reads the certificate anew where there is one, and drains otherwise, as when a terminal is closed; a server that
was started to ignore it, as by nohup, goes on doing so.
"""

from __future__ import annotations

import asyncio
import contextlib
import ipaddress
import logging
import math
import os
import resource
import signal
import socket
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import asynccontextmanager, contextmanager
from functools import partial
from typing import Any
from urllib.parse import urlsplit

import uvicorn

from windlass import __version__, log
from windlass.config import Settings
from windlass.config.address import Address, address_file, remove_address, sqlite_file, write_address
from windlass.config.settings import Server
from windlass.engine.engine import Engine
from windlass.engine.outside import Outside
from windlass.engine.storage import storage
from windlass.errors import SetupError
from windlass.queue import keys
from windlass.server.app import CONNECTIONS, create_app
from windlass.server.auth import Gate
from windlass.server.protocol import Protocol
from windlass.server.starting import Starting
from windlass.server.tls import Certificates, TlsListener
from windlass.server.tuning import tuned

NOTICE_S = 1.0
"""After SIGTERM the port stays open so long, not ready, for a load balancer to see it."""
BACKLOG = 2048
OWN_FILES = 128
"""Of the files that a process may have open, those that are no connections of callers: the database, pipes, logs."""
INTERRUPTED = 130
AT_ONCE_S = 1.0

logger = logging.getLogger("windlass")


class _Listener(uvicorn.Server):
    def __init__(self, config: uvicorn.Config, certificates: Certificates | None) -> None:
        super().__init__(config)
        self._certificates = certificates
        self._encrypted: list[TlsListener] = []

    @contextmanager
    def capture_signals(self) -> Iterator[None]:
        """Leave signals to us."""
        yield

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        """Listen; with a certificate the handshake is ours, as it is to be counted, and ended when it takes long."""
        if self._certificates is None:
            await super().startup(sockets)
            return
        for listener in sockets or ():
            make = partial(Protocol, self.config, self.server_state, {})
            self._encrypted.append(TlsListener(listener, self._certificates, make))
        self.servers = []
        self.started = True

    async def shutdown(self, sockets: list[socket.socket] | None = None) -> None:
        """Accept no more, and wait for what is under way."""
        for listener in self._encrypted:
            listener.close()
        await super().shutdown(sockets)


async def serve(
    settings: Settings,
    *,
    migrate: bool = False,
    said: Callable[[str], None] = lambda _: None,
    opened: Callable[[str], None] = lambda _: None,
    stopping: Stopping | None = None,
) -> int:
    """Serve until a signal; return the exit code. `said` is told, in a sentence each, what a person should know.

    `opened` is told the URL once it is served. `stopping` hears the signals, where somebody else has to stop first.
    """
    check_exposure(settings)
    stopping = Stopping() if stopping is None else stopping
    with listening(settings) as listener:
        host, port = listener.getsockname()[:2]
        url = f"{_scheme(settings)}://{_shown(host)}:{port}"
        door, certificates = Starting(), _certificates(settings)
        server = _Listener(_configuration(settings, door), certificates)
        stopping.renew = certificates.reload if certificates is not None else None
        with stopping.on_signals(), contextlib.ExitStack() as stack:
            serving = asyncio.create_task(server.serve(sockets=[listener]), name="listen")
            try:
                async with _engine(settings, stopping, migrate=migrate, address=f"{host}:{port}") as engine:
                    if engine is not None:
                        gate = Gate(engine.db, keys_required=keys_required(settings), hosts=own_hosts(settings))
                        connections = server.config.limit_concurrency or CONNECTIONS
                        door.open(create_app(engine, settings, gate, connections=connections))
                        stack.enter_context(tuned())
                        with announced(settings, _reached_at(settings, host, port=port)):
                            said(f"Windlass serves {url} ({engine.name}).")
                            log.event("server.started", url=url, server=engine.name, version=__version__)
                            opened(url)
                            await stopping.wait()
                        log.event("server.stopping", server=engine.name, requests=len(server.server_state.tasks))
                        engine.draining = True
                        draining = asyncio.create_task(engine.drain(), name="drain")
                        if stopping.gently:
                            await stopping.wait_again(NOTICE_S)
                        await stopping.unless_again(draining)
                    server.should_exit = True
                    await stopping.unless_again(serving)
            finally:
                server.should_exit = server.force_exit = True
                # Requests that are cut off here were meant to be; nobody needs a trace of each.
                logging.getLogger("uvicorn.error").disabled = True
                serving.cancel()
                await asyncio.gather(serving, return_exceptions=True)
    log.event("server.stopped", url=url, at_once=stopping.at_once)
    return INTERRUPTED if stopping.at_once else 0


class Stopping:
    """The signals that end a server: the first drains, the second ends at once."""

    def __init__(self) -> None:
        self._asked = asyncio.Event()
        self._again = asyncio.Event()
        self._hung_up = False
        self.gently = False
        self.renew: Callable[[], None] | None = None
        """What SIGHUP does, where there is something to read anew."""

    @property
    def at_once(self) -> bool:
        """Whether somebody was impatient."""
        return self._again.is_set()

    @contextmanager
    def on_signals(self) -> Iterator[None]:
        """Hear SIGTERM, SIGINT and SIGHUP within the block."""
        loop = asyncio.get_running_loop()
        heard: dict[int, Callable[[], None]] = {
            number: partial(self.hear, number) for number in (signal.SIGTERM, signal.SIGINT)
        }
        if signal.getsignal(signal.SIGHUP) != signal.SIG_IGN:
            heard[signal.SIGHUP] = self._hang_up
        for number, act in heard.items():
            loop.add_signal_handler(number, act)
        try:
            yield
        finally:
            for number in heard:
                loop.remove_signal_handler(number)

    async def wait(self) -> None:
        """Return when the server is to stop."""
        await self._asked.wait()

    async def wait_again(self, seconds: float) -> None:
        """Return after so long, or at the second signal."""
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(seconds):
                await self._again.wait()

    async def unless_again(self, task: asyncio.Task[None]) -> None:
        """Return when the task has ended, or at the second signal."""
        again = asyncio.create_task(self._again.wait())
        await asyncio.wait([task, again], return_when=asyncio.FIRST_COMPLETED)
        again.cancel()

    def _hang_up(self) -> None:
        # A closed terminal may say so twice, by the shell and by the kernel: nobody is impatient.
        if self.renew is not None:
            self.renew()
        elif not self._hung_up:
            self._hung_up = True
            self.hear(signal.SIGTERM)

    def hear(self, number: int) -> None:
        """Begin to stop; said again, stop at once."""
        if self._asked.is_set():
            self._again.set()
            # At once means at once, also when the database does not let go.
            asyncio.get_running_loop().call_later(AT_ONCE_S, os._exit, INTERRUPTED)
        self.gently = number == signal.SIGTERM
        self._asked.set()


@asynccontextmanager
async def _engine(
    settings: Settings, stopping: Stopping, *, migrate: bool, address: str
) -> AsyncIterator[Engine | None]:
    """Open the database, as long as it takes, and run an engine on it; None if the server is to stop before that."""
    opening = asyncio.create_task(storage(settings, migrate=migrate), name="open")
    asked = asyncio.create_task(stopping.wait())
    await asyncio.wait([opening, asked], return_when=asyncio.FIRST_COMPLETED)
    asked.cancel()
    if not opening.done():
        opening.cancel()
        await asyncio.gather(opening, return_exceptions=True)
        yield None
        return
    db = opening.result()
    try:
        name = f"scheduler_{socket.gethostname()}_{os.getpid()}"
        engine = Engine(db, settings, name=name, outside=Outside(), address=address)
        await _check_keys(engine, settings)
        async with engine.running():
            yield engine
    finally:
        await db.close()


async def _check_keys(engine: Engine, settings: Settings) -> None:
    if settings.security.bootstrap_key is not None:
        await keys.bootstrap(engine.db, settings.security.bootstrap_key)
    if keys_required(settings) and not (await keys.list_keys(engine.db, limit=1)).keys:
        raise SetupError(
            f"There is no key yet, and callers of {settings.server.host} need one. Make one with "
            "`windlass keys create NAME --role admin --database URL`, or set security.bootstrap_key."
        )


def check_exposure(settings: Settings) -> None:
    """Return if the server may listen where it is told to; SetupError if that needs keys or TLS which are off."""
    server = settings.server
    if is_loopback(server.host) or server.insecure:
        return
    if not keys_required(settings):
        raise SetupError(
            f"server.host is {server.host}, and security.keys_required is off: anybody who reaches it could "
            "run jobs. Leave keys on, listen on 127.0.0.1, or say --insecure."
        )
    if settings.security.tls_cert is None and not server.allow_plain:
        raise SetupError(
            f"server.host is {server.host}, and there is no TLS: keys and jobs could be read on the way. Set "
            "security.tls_cert and tls_key, or set server.allow_plain where a proxy before this server has TLS."
        )


def keys_required(settings: Settings) -> bool:
    """Say whether callers need a key: always, never, or everywhere but on loopback."""
    asked = settings.security.keys_required
    if isinstance(asked, bool):
        return asked
    return not is_loopback(settings.server.host) and not settings.server.insecure


def own_hosts(settings: Settings) -> frozenset[str]:
    """Return the names that this server goes by."""
    named = {settings.server.host, urlsplit(settings.server.url).hostname or "", socket.gethostname()}
    return frozenset(name.lower() for name in named if name)


def is_loopback(host: str) -> bool:
    """Say whether only this machine reaches `host`."""
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return host == "localhost"


@contextmanager
def listening(settings: Settings) -> Iterator[socket.socket]:
    """Open the port; SetupError with the reason if it cannot be had."""
    host, port = settings.server.host, settings.server.port
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    # With the protocol by its number: asyncio's own loop sends a second piece of an answer without delay only then.
    listener = socket.socket(family, socket.SOCK_STREAM, socket.IPPROTO_TCP)
    try:
        listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        listener.bind((host, port))
        listener.listen(BACKLOG)
        listener.setblocking(False)
        yield listener
    except OSError as error:
        raise SetupError(f"Cannot listen on {host}:{port}: {error.strerror}. Use another --port or --host.") from error
    finally:
        listener.close()


@contextmanager
def announced(settings: Settings, url: str) -> Iterator[None]:
    """Leave the address beside a SQLite file within the block, for programs on this machine that look for a server."""
    file = sqlite_file(settings.database.url)
    if file is None:
        yield
        return
    path, pid = address_file(file), os.getpid()
    try:
        write_address(path, Address(url=url, pid=pid, version=__version__))
    except OSError as error:
        logger.warning("Programs will not find this server by its file: %s cannot be written: %s", path, error)
    try:
        yield
    finally:
        remove_address(path, pid)


def _reached_at(settings: Settings, host: str, *, port: int) -> str:
    """Return where programs on this machine reach the server."""
    if settings.security.tls_cert is not None and settings.server.url != Server().url:
        return settings.server.url  # the name that the certificate is for
    own = {"0.0.0.0": "127.0.0.1", "::": "::1"}.get(host, host)
    return f"{_scheme(settings)}://{_shown(own)}:{port}"


def _configuration(settings: Settings, app: Any) -> uvicorn.Config:
    return uvicorn.Config(
        app,
        loop="none",
        http=Protocol,
        ws="none",
        lifespan="off",
        log_config=None,
        access_log=False,
        server_header=False,
        date_header=False,
        proxy_headers=False,
        backlog=BACKLOG,
        limit_concurrency=connections_allowed(settings.server.max_connections),
        timeout_keep_alive=75,
        timeout_graceful_shutdown=math.ceil(settings.server.drain_seconds),
    )


def connections_allowed(asked: int) -> int:
    """Return how many connections there may be, with the limit of open files raised as far as that needs."""
    wanted = asked + OWN_FILES
    limit, most = resource.getrlimit(resource.RLIMIT_NOFILE)
    endless = resource.RLIM_INFINITY
    if limit != endless and limit < wanted:
        raised = wanted if most == endless else min(wanted, most)
        with contextlib.suppress(ValueError, OSError):
            resource.setrlimit(resource.RLIMIT_NOFILE, (raised, most))
            limit = raised
    if limit == endless or limit >= wanted:
        return asked
    allowed = max(limit - OWN_FILES, limit // 2)
    log.event("server.few_files", asked=asked, allowed=allowed, limit=limit)
    return allowed


def _certificates(settings: Settings) -> Certificates | None:
    security = settings.security
    if security.tls_cert is None or security.tls_key is None:
        return None
    return Certificates(security.tls_cert, security.tls_key, now=asyncio.get_running_loop().time())


def _scheme(settings: Settings) -> str:
    return "https" if settings.security.tls_cert else "http"


def _shown(host: str) -> str:
    return f"[{host}]" if ":" in host else host
