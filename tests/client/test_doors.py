"""The way to a server: before, while and after one runs, over restarts and lost answers, from threads and forks."""

from __future__ import annotations

import asyncio
import os
import signal
import subprocess
import sys
import threading
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any
from uuid import UUID

import asyncpg
import httpx2
import msgspec
import pytest

from tests.client.serving import PATIENCE_S, Served, until
from tests.cluster import free_port
from tests.proofs.processes import server_arguments, started
from windlass import App
from windlass.client.answers import Answer
from windlass.client.doors import HttpDoor
from windlass.client.requests import Request
from windlass.client.tries import NotHeard, ServerDown
from windlass.config import Settings
from windlass.config.address import Address, address_file, read_address, write_address
from windlass.config.settings import Client, Database
from windlass.config.settings import Server as ServerSettings
from windlass.embedded import Embedded
from windlass.errors import DatabaseLocked, JobCancelled, SchemaMismatch, SetupError, Unavailable
from windlass.job import State

OURS = str(Path(__file__).parents[2] / "src")


@pytest.fixture
def file(tmp_path: Path) -> Path:
    """A SQLite file that is not there yet."""
    return tmp_path / "windlass.db"


@pytest.fixture
def url(file: Path) -> str:
    """Its URL."""
    return f"sqlite:///{file}"


async def submitted(app: App) -> State:
    """Submit a job and return how it is, as a program without an event loop would."""
    return await asyncio.to_thread(lambda: app.enqueue("t", {"a": 1}).status)


async def test_one_program_before_while_and_after_a_server_runs(url: str, file: Path) -> None:
    """The file itself, then the server that has it open, then the file again: nothing in the program changes."""
    with App(database=url) as app:
        before = (await submitted(app), app.where)
        async with started(*server_arguments(url)) as server:
            address = await server.serving()
            during = (await submitted(app), app.where)
            server.send(signal.SIGTERM)
            code = await server.ended()
        after = (await submitted(app), app.where)

    assert (State.QUEUED, url) == before
    assert (State.QUEUED, address) == during
    assert (State.QUEUED, url) == after
    assert 0 == code
    assert not address_file(file).exists()


async def test_a_server_that_was_killed_is_not_waited_for(url: str, file: Path) -> None:
    """It leaves its address behind; the program goes on by itself, and finds the next server."""
    with App(database=url, patience=PATIENCE_S) as app:
        async with started(*server_arguments(url)) as server:
            await server.serving()
            await submitted(app)
            server.send(signal.SIGKILL)
            await server.ended()
        left = address_file(file).exists()
        alone = (await submitted(app), app.where)
        async with started(*server_arguments(url)) as server:
            address = await server.serving()
            again = (await submitted(app), app.where)

    assert left
    assert (State.QUEUED, url) == alone
    assert (State.QUEUED, address) == again


async def test_the_number_of_a_killed_server_may_be_another_process(url: str, file: Path) -> None:
    """An address at which nobody answers is believed only while somebody has the server's role."""
    app = App(database=url, patience=PATIENCE_S)
    write_address(address_file(file), Address(url=f"http://127.0.0.1:{free_port()}", pid=os.getpid(), version="0"))

    assert (State.QUEUED, url) == (await submitted(app), app.where)
    app.close()


async def test_a_server_that_has_the_file_and_does_not_answer_is_waited_for(url: str, file: Path) -> None:
    """Beside a server that only starts nobody begins by himself; patience ends it, and the error says where."""
    address = f"http://127.0.0.1:{free_port()}"
    holder = Embedded(Settings(database=Database(url=url)), claims=True)
    write_address(address_file(file), Address(url=address, pid=os.getpid(), version="0"))

    with (
        App(database=url, patience="3s") as app,
        pytest.raises(Unavailable, match=f"No server answers at {address}"),
    ):
        await submitted(app)

    holder.close()


async def test_ten_threads_beside_the_server_of_one_file(url: str, file: Path) -> None:
    """Embedded submits go under SQLite's own locks: none is lost, none stored twice, the server sees them all."""
    async with started(*server_arguments(url)) as server:
        address = await server.serving()
        address_file(file).unlink()
        app = App(database=url, patience=PATIENCE_S)

        def submit(thread: int) -> list[Any]:
            return [app.enqueue("t", {"thread": thread, "number": number}).id for number in range(20)]

        with ThreadPoolExecutor(10) as threads:
            ids = [job_id for found in await asyncio.gather(*_all(threads, submit, 10)) for job_id in found]
        async with httpx2.AsyncClient(verify=False, base_url=f"{address}/api/v1", timeout=PATIENCE_S) as client:
            listed = (await client.get("/jobs", params={"limit": 500})).json()
        here = app.where
        app.close()

    assert url == here
    assert 200 == len(set(ids)) == len(listed["jobs"])
    assert {str(job_id) for job_id in ids} == {job["id"] for job in listed["jobs"]}


def _all(threads: ThreadPoolExecutor, work: Any, count: int) -> list[Any]:
    return [asyncio.get_running_loop().run_in_executor(threads, work, number) for number in range(count)]


async def test_a_wait_for_a_result_goes_on_over_a_restart(url: str) -> None:
    """The server goes and comes back while somebody waits; the result arrives."""
    port = free_port()
    app = App(url=f"http://127.0.0.1:{port}", patience=PATIENCE_S)
    async with started(*server_arguments(url, port=port)) as server:
        await server.serving()
        job = await app.aenqueue("t")
        waiting = [asyncio.ensure_future(job.aresult(PATIENCE_S))]
        waiting.append(asyncio.ensure_future(asyncio.to_thread(job.result, PATIENCE_S)))
        server.send(signal.SIGKILL)
        await server.ended()
    async with started(*server_arguments(url, port=port)) as server:
        address = await server.serving()
        async with httpx2.AsyncClient(verify=False, base_url=f"{address}/api/v1", timeout=PATIENCE_S) as client:
            [claimed] = (await client.post("/jobs/claim", json={"worker_id": "w"})).json()["jobs"]
            lease = {"worker_id": "w", "fence": claimed["fence"], "session": claimed["session"]}
            await client.post(f"/jobs/{job.id}/complete", json={**lease, "result": {"done": True}})
        results = await asyncio.gather(*waiting)
    await app.aclose()

    assert [{"done": True}] * 2 == results


class _Lossy:
    """Loses the first answer to each submit."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.sent: list[Request] = []
        send = HttpDoor.send

        def lossy(door: HttpDoor, request: Request) -> Answer:
            answer = send(door, request)
            self.sent.append(request)
            if request.method == "POST" and len(self.sent) == 1:
                raise Unavailable("The connection broke.")
            return answer

        monkeypatch.setattr(HttpDoor, "send", lossy)


@pytest.fixture
def server(sqlite_url: str) -> Any:
    """A server of an empty SQLite file."""
    made = Served(sqlite_url)
    yield made
    made.close()


def stored_count(server: Served) -> int:
    """Return how many jobs there are."""
    found: int = httpx2.get(f"{server.url}/api/v1/jobs", verify=False, timeout=PATIENCE_S).json()["total"]
    return found


def test_rel_d3_a_submit_whose_answer_was_lost_is_one_job(server: Served, monkeypatch: pytest.MonkeyPatch) -> None:
    """It is said again under the key it was first said with, and is the job made first."""
    lossy = _Lossy(monkeypatch)

    with App(url=server.url, patience=PATIENCE_S) as app:
        job = app.enqueue("t", {"a": 1})
        keyed = app.job(job.id).info().idempotency_key

    assert job.duplicate
    assert 1 == stored_count(server)
    assert (keyed or "").startswith("call-")
    assert lossy.sent[0] == lossy.sent[1]


def test_what_cannot_be_said_twice_is_not(server: Served, monkeypatch: pytest.MonkeyPatch) -> None:
    """Without a key the caller is told that nothing is known; a batch has none."""
    _Lossy(monkeypatch)

    with App(url=server.url, keyed=False) as app, pytest.raises(Unavailable, match="broke"):
        app.enqueue("t")

    assert 1 == stored_count(server)


@pytest.mark.filterwarnings("ignore:.*fork.*:DeprecationWarning")
def test_a_forked_child_finds_its_own_way(server: Served) -> None:
    """It uses nothing of its parent's connections, and the parent goes on with them."""
    with App(url=server.url) as app:
        app.enqueue("before")

        assert 0 == forked(app)
        assert State.QUEUED is app.enqueue("after").status
    assert 3 == stored_count(server)


@pytest.mark.filterwarnings("ignore:.*fork.*:DeprecationWarning")
def test_a_forked_child_has_an_engine_of_its_own(tmp_path: Path) -> None:
    """The engine of its parent rests while it is forked: SQLite's locks are those of a process."""
    with App(database=f"sqlite:///{tmp_path}/jobs.db") as app:
        app.enqueue("before")

        assert 0 == forked(app)
        assert State.QUEUED is app.enqueue("after").status


def forked(app: App) -> int:
    """Enqueue a job in a forked child; return its exit code."""
    child = os.fork()
    if child == 0:
        code = 1
        signal.alarm(int(PATIENCE_S))  # a child that waits for its parent's thread is ended, and seen
        try:
            code = 0 if app.enqueue("child").status is State.QUEUED else 2
        finally:
            os._exit(code)
    _, status = os.waitpid(child, 0)
    return os.waitstatus_to_exitcode(status)


@pytest.mark.parametrize("way", ["http", "embedded"])
def test_one_application_in_several_event_loops(server: Served, way: str) -> None:
    """Each loop has connections of its own; one that has ended does not spoil the next."""
    app = App(url=server.url) if way == "http" else App(database=server.settings.database.url)

    async def submit() -> int:
        jobs = await asyncio.gather(*(app.aenqueue("t", number) for number in range(5)))
        if way == "http":
            await app.aclose()
        return len({job.id for job in jobs})

    with ThreadPoolExecutor(3) as threads:
        counts = list(threads.map(lambda _: asyncio.run(submit()), range(6)))

    assert [5] * 6 == counts
    assert 30 == stored_count(server)
    app.close()


def asked(engine: Embedded, path: str, body: Any) -> tuple[int, Any]:
    """Ask an embedded engine and return status and answer."""
    status, answer, _ = engine.ask("POST", path, query={}, body=msgspec.json.encode(body)).result(PATIENCE_S)
    return status, msgspec.json.decode(answer)


def test_an_embedded_engine_claims_only_with_the_server_s_role(url: str) -> None:
    """Beside a server it submits and looks; with `claims` it is the server of the file, and the only one."""
    settings = Settings(database=Database(url=url))
    beside, holder = Embedded(settings), Embedded(settings, claims=True)
    submitted, _ = asked(beside, "/jobs", {"task": "t"})

    refused, problem = asked(beside, "/jobs/claim", {"worker_id": "w"})
    claimed, handout = asked(holder, "/jobs/claim", {"worker_id": "w", "wait": 20})

    assert 201 == submitted
    assert (409, "conflict") == (refused, problem["code"])
    assert "windlass up" in problem["detail"]
    assert (200, 1) == (claimed, len(handout["jobs"]))
    with pytest.raises(DatabaseLocked):
        Embedded(settings, claims=True)
    for engine in (beside, holder):
        engine.close()
    with pytest.raises(Unavailable, match="was closed"):
        asked(beside, "/jobs", {"task": "t"})


def test_tasks_submit_to_the_server_of_their_worker(url: str) -> None:
    """A worker tells the application where it works, and that comes first: elsewhere nobody may run the jobs."""
    settings = Settings(server=ServerSettings(url="http://jobs.example:8000"))
    apps = [App(), App(url="http://own.example"), App(database=url)]
    apps[2].enqueue("t")

    for app in apps:
        app.use(settings)

    assert ["http://jobs.example:8000"] * 3 == [app.where for app in apps]


@pytest.mark.parametrize(
    ("own", "given", "sent"),
    [
        (App(key="own"), None, "own"),
        (App(url="http://jobs.example:8000", key="own"), None, "own"),
        (App(url="http://own.example", key="own"), None, None),
        (App(url="http://own.example", key="own"), "given", "given"),
    ],
)
def test_the_key_for_one_server_is_not_sent_to_another(own: App, given: str | None, sent: str | None) -> None:
    """At its worker's server an application has the worker's key; its own only if that was not for elsewhere."""
    server = ServerSettings(url="http://jobs.example:8000")

    own.use(Settings(server=server, client=Client(key=given)))
    own._shell._left(own._shell._entered())

    door = own._shell._door
    assert isinstance(door, HttpDoor)
    assert (None if sent is None else f"Bearer {sent}") == door._headers.get("authorization")


def test_an_application_tells_the_database_that_it_names(url: str) -> None:
    """So that `windlass up` can serve it; None where the settings decide, and in a worker."""
    named = App(database=url)
    before = named.database

    named.use(Settings())

    assert (url, None, None) == (before, named.database, App().database)


@pytest.mark.parametrize("way", ["close", "aclose"])
def test_after_close_another_database_may_be_used(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, way: str) -> None:
    """What the settings say is read again, as at the first call; what the application names itself stays."""
    urls = [f"sqlite:///{tmp_path}/{name}.db" for name in ("first", "second")]
    app, named = App(), App(database=urls[0])
    for url in urls:
        monkeypatch.setenv("WINDLASS_DATABASE_URL", url)
        app.enqueue("t")
        assert (url, urls[0]) == (app.where, named.where)
        for each in (app, named):
            each.close() if way == "close" else asyncio.run(each.aclose())
    monkeypatch.setenv("WINDLASS_URL", "http://jobs.example:8000")

    assert "http://jobs.example:8000" == app.where
    assert (True, True) == tuple((tmp_path / name).exists() for name in ("first.db", "second.db"))


def test_after_close_a_task_still_submits_to_the_server_of_its_worker(url: str) -> None:
    """What a worker has told the application is not forgotten."""
    with App(database=url) as app:
        app.use(Settings(server=ServerSettings(url="http://jobs.example:8000")))
    assert "http://jobs.example:8000" == app.where


def test_nothing_is_opened_before_it_is_used(url: str, file: Path) -> None:
    """An App and its tasks cost nothing in a program that only imports them."""
    app = App(database=url)
    app.task(name="t")(free_port)

    app.close()

    assert not file.exists()


def test_a_program_that_closes_nothing_ends_well(url: str) -> None:
    """The embedded engine ends with the program, in a forked child too: exit 0, nothing said, the job is there."""
    code = """if True:
        import os, sys
        from windlass import App
        app = App(database=sys.argv[1])
        app.enqueue('t')
        if os.fork():
            assert os.wait()[1] == 0
            print(app.enqueue('t').status)
    """

    done = subprocess.run(
        [sys.executable, "-W", "always", "-c", code, url],
        env={**os.environ, "PYTHONPATH": OURS},
        capture_output=True,
        text=True,
        timeout=PATIENCE_S,
        check=False,
    )

    assert (0, "queued\n", "") == (done.returncode, done.stdout, done.stderr)
    with App(database=url) as app:
        assert State.QUEUED is app.enqueue("t").status


def test_a_file_that_cannot_be_made_is_said(tmp_path: Path) -> None:
    """The path and the reason, not a traceback of the operating system's."""
    with App(database=f"sqlite:///{tmp_path}/nowhere/windlass.db") as app, pytest.raises(SetupError, match="nowhere"):
        app.enqueue("t")


def test_a_database_that_does_not_answer_is_waited_for() -> None:
    """Nothing was heard there, so whatever it is may be said again; when patience ends the error says why."""
    url = f"postgresql://nobody@127.0.0.1:{free_port()}/none"

    with App(database=url, patience="300ms") as app, pytest.raises(NotHeard):
        app.job(UUID(int=1)).retry()


def test_the_address_of_nobody_is_none(file: Path) -> None:
    """A file that is not there, is damaged, or names a process that has ended."""
    path = address_file(file)
    missing = read_address(path)
    path.write_text("{")
    damaged = read_address(path)
    ended = subprocess.Popen([sys.executable, "-c", ""])
    ended.wait()
    write_address(path, Address(url="http://127.0.0.1:1", pid=ended.pid, version="0"))

    assert [None] * 3 == [missing, damaged, read_address(path)]


def engines() -> int:
    """Return how many embedded engines live in this process."""
    return sum(thread.name == "windlass-embedded" for thread in threading.enumerate())


async def test_servers_that_come_and_go_leave_nothing_open(url: str, file: Path) -> None:
    """The engine inside the program ends when a server has come, and one that was left is not kept."""
    before = engines()
    with App(database=url, patience=PATIENCE_S) as app:
        await submitted(app)
        for _ in range(3):
            server = await asyncio.to_thread(Served, url)
            write_address(address_file(file), Address(url=server.url, pid=os.getpid(), version="0"))
            during = (await submitted(app), app.where)
            address_file(file).unlink()
            await asyncio.to_thread(server.close)
            after = (await submitted(app), app.where)

            assert ((State.QUEUED, server.url), (State.QUEUED, url)) == (during, after)
        await until(lambda: engines() <= before + 1)


async def test_a_call_that_still_waits_keeps_its_door_open(url: str, file: Path) -> None:
    """A wait that began without a server is not cut off when one comes."""
    before = engines()
    with App(database=url, patience=PATIENCE_S) as app:
        job = await app.aenqueue("t")
        waiting = asyncio.create_task(job.aresult(PATIENCE_S))
        await until(lambda: app._shell._calls.total() > 0)
        server = await asyncio.to_thread(Served, url)
        write_address(address_file(file), Address(url=server.url, pid=os.getpid(), version="0"))
        await submitted(app)

        kept = engines()
        await job.acancel()

        assert before + 1 == kept
        with pytest.raises(JobCancelled):
            await waiting
        await until(lambda: engines() <= before)
        address_file(file).unlink()
        await app.aclose()
        await asyncio.to_thread(server.close)


@pytest.mark.parametrize(
    ("address", "writer", "believed"),
    [
        ("http://127.0.0.1:8000", "us", True),
        ("http://[::1]:8000", "us", True),
        ("http://localhost:8000", "owner", True),
        ("http://127.0.0.1:8000", "stranger", False),
        ("http://jobs.example:8000", "us", False),
        ("https://jobs.example:8000", "us", True),
        ("https://jobs.example:8000", "owner", False),
        ("http://127.0.0.1.jobs.example:8000", "us", False),
    ],
)
def test_rel_t8_a_key_goes_where_a_trusted_file_leads(
    file: Path, monkeypatch: pytest.MonkeyPatch, address: str, writer: str, believed: bool
) -> None:
    """Whoever may write into the folder of a database must not collect the keys of those who use it."""
    path = address_file(file)
    file.touch()
    write_address(path, Address(url=address, pid=os.getpid(), version="0"))
    if writer != "us":
        monkeypatch.setattr(os, "geteuid", lambda: path.stat().st_uid + 1)
    if writer == "stranger":
        file.unlink()

    assert believed == (read_address(path) is not None)


def test_a_result_that_nobody_makes_is_told_so(url: str) -> None:
    """Without a server a job waits, and the error of who waits for it says that."""
    with App(database=url) as app, pytest.raises(TimeoutError, match="no server was found for sqlite"):
        app.enqueue("t").result(0.1)


@pytest.mark.postgres
async def test_an_empty_postgresql_is_not_set_up_by_itself(fresh_postgres_url: str) -> None:
    """Its address may be a mistake: the error says how to set it up."""
    connection = await asyncpg.connect(fresh_postgres_url)
    await connection.execute("DROP SCHEMA windlass CASCADE")
    await connection.close()

    with App(database=fresh_postgres_url) as app, pytest.raises(SchemaMismatch, match="windlass migrate"):
        await submitted(app)


@pytest.mark.one_kind
def test_rel_t17_no_message_has_the_password_of_an_address() -> None:
    """L5: a password in WINDLASS_URL is used, and shown to nobody."""
    door = HttpDoor("http://me:canary@127.0.0.1:1", key=None)

    with pytest.raises(ServerDown, match=r"No server answers at http://me:\*\*\*@127\.0\.0\.1:1: ") as error:
        door.send(Request(method="GET", path="/jobs"))

    door.close()
    assert "canary" not in str(error.value)
    assert "canary" in door.url
