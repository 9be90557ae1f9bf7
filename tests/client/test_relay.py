"""The relay of an application's own database: each row becomes one job, whatever dies in between."""

from __future__ import annotations

import sqlite3
import threading
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

import pytest
import sqlalchemy

from windlass.client.outbox import OUTBOX_DDL, enqueue_in
from windlass.client.relay import Relay
from windlass.errors import InvalidInput, Unavailable

PATIENCE_S = 60.0


class Server:
    """Stands for an App: keeps jobs by their idempotency key, as a server does."""

    def __init__(self) -> None:
        self.jobs: dict[str, Any] = {}
        self.requests: list[int] = []
        self.down = False
        self.heard = threading.Event()

    def enqueue_many(self, calls: Iterable[Any]) -> list[Any]:
        """Store calls, all or none."""
        made = list(calls)
        if self.down:
            raise Unavailable("Nobody answers.")
        if any(call.name == "cursed" for call in made):
            raise InvalidInput("task", "no")
        self.requests.append(len(made))
        for call in made:
            self.jobs.setdefault(call.options.idempotency_key, (call.name, bytes(call.payload), call.options))
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
    assert {"post"} == {job[2].queue for job in server.jobs.values()}
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
