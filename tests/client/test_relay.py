"""The relay of an application's own database: each row becomes one job, whatever dies in between."""

from __future__ import annotations

import sqlite3
import threading
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

import msgspec
import pytest
import sqlalchemy

from tests.client.serving import Served
from windlass import App
from windlass.client.outbox import OUTBOX_DDL, enqueue_in
from windlass.client.relay import Relay
from windlass.errors import (
    BodyTooLarge,
    Forbidden,
    InvalidInput,
    NotFound,
    PayloadTooLarge,
    Unauthorized,
    Unavailable,
    WindlassError,
)

PATIENCE_S = 60.0


class Server:
    """Stands for an App: keeps jobs by their idempotency key, as a server does."""

    def __init__(self) -> None:
        self.jobs: dict[str, Any] = {}
        self.requests: list[int] = []
        self.down = False
        self.refused: dict[str, WindlassError] = {"cursed": InvalidInput("task", "no")}
        """Errors by task."""
        self.heard = threading.Event()

    def enqueue_many(self, calls: Iterable[Any]) -> list[Any]:
        """Store calls, all or none."""
        made = list(calls)
        if self.down:
            raise Unavailable("Nobody answers.")
        for call in made:
            if call.name in self.refused:
                raise self.refused[call.name]
        self.requests.append(len(made))
        for call in made:
            fields = call.options.fields(call.name, call.payload)
            said = {name: msgspec.json.decode(raw) for name, raw in fields.items()}
            self.jobs.setdefault(said["idempotency_key"], (call.name, bytes(call.payload), said))
        self.heard.set()
        return made


@pytest.fixture
def path(tmp_path: Path) -> Path:
    """The application's own database, with an outbox."""
    made = tmp_path / "own.db"
    connection = sqlite3.connect(made)
    connection.execute(OUTBOX_DDL)
    connection.close()
    return made


@pytest.fixture
def connect(path: Path) -> Callable[[], sqlite3.Connection]:
    """Open the application's own database."""
    return lambda: sqlite3.connect(path)


def write(connect: Callable[[], sqlite3.Connection], *tasks: str, **options: Any) -> list[str]:
    """Enqueue tasks in one transaction; return the ids of the rows."""
    connection = connect()
    ids = [str(enqueue_in(connection, task, {"n": 1}, **options)) for task in tasks]
    connection.commit()
    connection.close()
    return ids


def put(connect: Callable[[], sqlite3.Connection], row_id: str, *, payload: Any = "{}", options: str = "{}") -> None:
    """Write a row as another program may."""
    connection = connect()
    connection.execute(
        "INSERT INTO windlass_outbox (id, task, payload, options) VALUES (?, 'a', ?, ?)", [row_id, payload, options]
    )
    connection.commit()
    connection.close()


def left(connect: Callable[[], sqlite3.Connection]) -> list[tuple[str, str | None]]:
    """Return the rows that are left, with their errors."""
    connection = connect()
    rows = connection.execute("SELECT id, error FROM windlass_outbox ORDER BY id").fetchall()
    connection.close()
    return rows


def relay(connect: Any, server: Server, **settings: Any) -> Relay:
    """Return a relay to a server of the tests."""
    return Relay(connect, server, **settings)  # type: ignore[arg-type]


def test_rows_become_jobs_and_are_gone(connect: Any) -> None:
    """In one request, in the order in which they were written, with their options."""
    server = Server()
    ids = write(connect, "a", "b", queue="post")

    assert 2 == relay(connect, server).run_once()

    assert [("a", b'{"n":1}'), ("b", b'{"n":1}')] == [job[:2] for job in server.jobs.values()]
    assert [f"outbox:{row_id}" for row_id in ids] == list(server.jobs)
    assert {"post"} == {job[2]["queue"] for job in server.jobs.values()}
    assert ([2], []) == (server.requests, left(connect))


def test_a_relay_that_dies_before_the_delete_makes_no_second_job(connect: Any, path: Path) -> None:
    """The row's id is the idempotency key: submitted again it is the same job."""
    server = Server()
    write(connect, "a")

    class Dies(sqlite3.Connection):
        """Is killed before its commit."""

        def commit(self) -> None:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        relay(lambda: sqlite3.connect(path, factory=Dies), server).run_once()
    relay(connect, server).run_once()

    assert [1, 1] == server.requests
    assert (1, []) == (len(server.jobs), left(connect))


def test_two_relays_make_one_job_for_a_row(connect: Any) -> None:
    """Both read the same row before either deletes it."""
    server = Server()
    write(connect, "a")
    both = threading.Barrier(2)
    submit = server.enqueue_many

    def together(calls: Iterable[Any]) -> list[Any]:
        both.wait(PATIENCE_S)
        return submit(calls)

    server.enqueue_many = together  # type: ignore[method-assign]
    threads = [threading.Thread(target=relay(connect, server).run_once) for _ in range(2)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(PATIENCE_S)

    assert (1, []) == (len(server.jobs), left(connect))


def test_a_key_of_the_users_own_is_kept(connect: Any) -> None:
    """It names the work already."""
    server = Server()
    write(connect, "a", idempotency_key="mine")

    relay(connect, server).run_once()

    assert ["mine"] == list(server.jobs)


def test_a_row_that_is_refused_is_set_aside_and_the_others_go(connect: Any) -> None:
    """It is found by halves, keeps its error, and is not tried again."""
    server = Server()
    ids = write(connect, "a", "b", "cursed", "c", "d")
    connection = connect()
    connection.execute("INSERT INTO windlass_outbox (id, task, options) VALUES ('broken', 'e', '{')")
    connection.commit()
    connection.close()
    made = relay(connect, server)

    made.run_once()

    assert ["a", "b", "c", "d"] == [job[0] for job in server.jobs.values()]
    assert [ids[2], "broken"] == [row_id for row_id, error in left(connect) if error]
    assert 0 == made.run_once()


@pytest.mark.parametrize("way", ["http"])
def test_a_row_that_no_server_takes_keeps_no_other_waiting(connect: Any, served: Served) -> None:
    """By a real server: too large for a payload, for a request, for a batch; an option that is none; no JSON."""
    bad: dict[str, dict[str, Any]] = {
        "0-payload": {"payload": msgspec.json.encode("x" * 300_000).decode()},
        "1-body": {"payload": msgspec.json.encode("x" * (2 << 20)).decode()},
        "2-batch": {"payload": msgspec.json.encode("x" * (9 << 20)).decode()},
        "3-queue": {"options": '{"queue": "a/b"}'},
        "4-option": {"options": '{"prioriti": 5}'},
        "5-value": {"options": '{"delay": "soon"}'},
        "6-smuggled": {"payload": '1, "queue": "other"'},
        "7-bytes": {"payload": b"\xff"},
    }
    for row_id, row in bad.items():
        put(connect, row_id, **row)
    write(connect, "a", "b")

    with App(url=served.url) as app:
        Relay(connect, app).run_once()

    kept = dict(left(connect))
    assert list(bad) == list(kept)
    assert all(kept.values())
    assert "Is it priority?" in str(kept["4-option"])


@pytest.mark.parametrize("error", [BodyTooLarge("too large"), PayloadTooLarge("payload", "too large")])
def test_what_is_too_large_is_set_aside(connect: Any, error: WindlassError) -> None:
    """Whoever says so: the server, or a proxy before it."""
    server = Server()
    server.refused["large"] = error
    ids = write(connect, "large", "a")

    relay(connect, server).run_once()

    assert [(ids[0], str(error))] == left(connect)


@pytest.mark.parametrize("error", [Forbidden("not your queue"), NotFound("no such tenant")])
def test_what_the_key_is_not_for_is_set_aside_if_the_key_is_good(connect: Any, error: WindlassError) -> None:
    """A row for a foreign queue is that row's fault; a key that may submit nothing is nobody's but its own."""
    server = Server()
    server.refused["foreign"] = error
    ids = write(connect, "foreign")

    with pytest.raises(type(error)):
        relay(connect, server).run_once()
    unmoved = left(connect)
    write(connect, "a")
    relay(connect, server).run_once()

    assert [(ids[0], None)] == unmoved
    assert [(ids[0], str(error))] == left(connect)


def test_a_key_that_is_not_good_sets_nothing_aside(connect: Any) -> None:
    """It may have been renewed, and the relay not told yet."""
    server = Server()
    server.refused["a"] = Unauthorized("no")
    write(connect, "a", "b")

    with pytest.raises(Unauthorized):
        relay(connect, server).run_once()

    assert [None, None] == [error for _, error in left(connect)]


def test_options_are_those_of_the_api(connect: Any) -> None:
    """They go to the server as they stand in the row: retries and spans as people write them, too."""
    server = Server()
    put(connect, "r", options='{"max_retries": 1, "delay": "1h30m"}')

    relay(connect, server).run_once()

    assert {
        "outbox:r": ("a", b"{}", {"max_retries": 1, "delay": "1h30m", "idempotency_key": "outbox:r"})
    } == server.jobs


def test_a_batch_is_all_that_is_read(connect: Any, path: Path) -> None:
    """The database is asked for no more rows than are submitted at once."""
    server, said = Server(), list[str]()
    write(connect, "a", "b", "c")

    def traced() -> sqlite3.Connection:
        connection = sqlite3.connect(path)
        connection.set_trace_callback(said.append)
        return connection

    assert [2, 1] == [relay(traced, server, batch_count=2).run_once() for _ in range(2)]
    assert [2, 1] == server.requests
    assert all("LIMIT 2" in text for text in said if text.startswith("SELECT"))


def test_rows_stay_while_no_server_answers(connect: Any) -> None:
    """Nothing is lost or set aside."""
    server = Server()
    server.down = True
    write(connect, "a")

    with pytest.raises(Unavailable):
        relay(connect, server).run_once()

    assert [None] == [error for _, error in left(connect)]


def test_an_engine_of_sqlalchemy_will_do(connect: Any, path: Path) -> None:
    """Its connections are taken from its pool, with its own style of parameters."""
    server = Server()
    write(connect, "a")
    engine = sqlalchemy.create_engine(f"sqlite:///{path}")

    assert 1 == relay(engine, server).run_once()

    assert (1, []) == (len(server.jobs), left(connect))
    engine.dispose()


def test_a_thread_relays_until_it_is_stopped(connect: Any) -> None:
    """`with Relay(...)`: what fails is tried again, and the thread ends with the block."""
    server = Server()
    server.down = True

    with relay(connect, server, look=0.01) as running:
        write(connect, "a")
        server.down = False
        assert server.heard.wait(PATIENCE_S)

    assert (1, []) == (len(server.jobs), left(connect))
    assert running._thread is not None
    assert not running._thread.is_alive()
