"""Isolated bodies: in a process that can die or be killed without harm to others."""

from __future__ import annotations

import os
import threading
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import msgspec
import pytest
from msgspec import Raw

from tests.worker.cellbodies import app
from tests.worker.poolsrig import PATIENCE_S, SHORT, Rig, claimed, completed, failed
from windlass.config.environment import for_tasks
from windlass.config.settings import Worker
from windlass.wire import work as wire

TARGET = "tests.worker.cellbodies:app"
TIMEOUT_S = 600
"""However long a process takes to come up, no time-out comes before a test moves the clock."""


@asynccontextmanager
async def cells(settings: Worker = SHORT, **options: Any) -> AsyncIterator[Rig]:
    """Pools whose bodies are isolated."""
    made = Rig(app.tasks, settings, **({"app_target": TARGET, "abandon_s": PATIENCE_S} | options))
    try:
        yield made
    finally:
        await made.pools.close()


def result(ended: Any) -> Any:
    """Return the result of a body that returned."""
    found = completed(ended).result
    assert isinstance(found, Raw)
    return msgspec.json.decode(found)


async def begun(rig: Rig, job: wire.ClaimedJob) -> None:
    """Wait until a body has said that it begins."""
    await rig.until(lambda: rig.texts(job))


async def test_a_body_runs_in_a_process_that_is_kept(monkeypatch: pytest.MonkeyPatch) -> None:
    """An isolated body runs elsewhere, in a session of its own, without our keys; the next one finds the process up."""
    monkeypatch.setenv("WINDLASS_SERVER_BOOTSTRAP_KEY", "wl_a_b")
    monkeypatch.setenv("WINDLASS_LABEL", "seen")

    async with cells(threads=1) as rig:
        job = claimed("about", payload=b'{"x":4}')
        first = result(await rig.run(job))
        again = result(await rig.run(claimed("about")))
        third = result(await rig.run(claimed("about_async")))
        ended = rig.ended[job.id][0]

    assert (True, 4, str(job.id)) == (first["leads"], first["x"], first["id"])
    assert "WINDLASS_LABEL" in first["env"]
    assert "WINDLASS_SERVER_BOOTSTRAP_KEY" not in first["env"]
    assert os.getpid() != first["pid"]
    assert [first["pid"]] * 2 == [again["pid"], third]
    assert {"cpu_seconds", "peak_memory_mb"} == set(completed(ended).metrics or {})


async def test_an_isolated_body_submits_to_the_server_of_its_worker() -> None:
    """The process is told the address, and nothing that opens it."""
    async with cells(server_url="http://jobs.example:8000") as rig:
        where = result(await rig.run(claimed("where_jobs_go")))

    assert "http://jobs.example:8000" == where


def test_rel_t8_no_key_goes_to_an_isolated_process() -> None:
    """Keys, secrets and the addresses of databases stay out of its environment; what is the user's own stays in."""
    given = {
        "WINDLASS_KEY": "1",
        "WINDLASS_SECURITY__BOOTSTRAP_KEY": "2",
        "WINDLASS_DATABASE": "3",
        "WINDLASS_DATABASE__URL": "4",
        "WINDLASS_SMTP_PASSWORD": "5",
        "WINDLASS_URL": "6",
        "STRIPE_API_KEY": "7",
    }

    assert {"WINDLASS_URL": "6", "STRIPE_API_KEY": "7"} == for_tasks(given)


async def test_what_an_isolated_body_says_is_kept() -> None:
    """Printed, logged, written by C or by another program; progress and checkpoint: all come back."""
    async with cells() as rig:
        job = claimed("says")
        await rig.run(job)

        found = {(line.stream, line.level, line.text) for line in rig.lines[job.id]}
        assert found == {
            ("stdout", None, "printed"),
            ("stderr", None, "to stderr"),
            ("log", "INFO", "logged"),
            ("log", "WARNING", "by the context"),
            ("stdout", None, "by the system"),
            ("stdout", None, "by C"),
            ("stdout", None, "by another"),
            ("stdout", None, "no end"),
        }
        assert Raw(b"0.5") in [note.progress for note in rig.notes]
        assert Raw(b'{"row":3}') in [note.checkpoint for note in rig.notes]


async def test_an_isolated_body_ends_as_others_do() -> None:
    """Errors, with their traceback, snoozes and arguments that do not fit come back as from a thread."""
    async with cells() as rig:
        error = failed(await rig.run(claimed("raises")))
        snoozed = (await rig.run(claimed("snoozes"))).entry
        wrong = failed(await rig.run(claimed("about", payload=b'{"y":1}')))

    assert ("ValueError", "in the cell", True) == (error.error_type, error.error_message, error.retryable)
    assert "cellbodies.py" in (error.traceback or "")
    assert isinstance(snoozed, wire.SnoozeEntry)
    assert (30.0, "later") == (snoozed.delay, snoozed.reason)
    assert not wrong.retryable


@pytest.mark.parametrize(
    ("how", "words"),
    [
        ("exit", "exit code 3"),
        pytest.param("segfault", "signal 11 (SIGSEGV)", marks=pytest.mark.exhaustive),
        pytest.param("null", "signal 11 (SIGSEGV)", marks=pytest.mark.exhaustive),
        ("group", "signal 9 (SIGKILL)"),
        pytest.param("closes", "exit code 1", marks=pytest.mark.exhaustive),
    ],
)
async def test_rel_a10_a15_a_process_that_dies_fails_its_attempt_only(how: str, words: str) -> None:
    """Exit, segfault, a kill of its group: the attempt fails with the reason and may be retried; a sibling goes on."""
    async with cells(threads=2) as rig:
        sibling = claimed("checks")
        rig.start(sibling)
        await begun(rig, sibling)

        entry = failed(await rig.run(claimed("dies", payload=msgspec.json.encode({"how": how}))))

        assert ("ProcessDied", True, "failed") == (entry.error_type, entry.retryable, entry.outcome)
        assert words in entry.error_message
        assert sibling.id not in rig.ended
        assert 1 == rig.pools.busy_count
        result(await rig.run(claimed("about")))
        rig.pools.stop((sibling.id, sibling.fence), "cancel")
        await rig.end(sibling)


@pytest.mark.parametrize("why", ["cancel", "timeout"])
@pytest.mark.parametrize(
    ("task", "rung"),
    [
        ("checks", "flag"),
        pytest.param("sleeps", "flag", marks=pytest.mark.exhaustive),
        ("cleans_up", "sigterm"),
        pytest.param("ignores", "sigkill", marks=pytest.mark.exhaustive),
        ("holds", "sigkill"),
    ],
)
async def test_an_isolated_body_is_stopped_and_the_rung_recorded(task: str, rung: str, why: str) -> None:
    """It is asked, then sent SIGTERM, then killed; the record says which it took, and the slot is free again."""
    grace_s = 30.0 if rung == "flag" else 0.1
    graces = Worker(
        cancel_grace_seconds=grace_s,
        timeout_grace_seconds=grace_s,
        kill_seconds=30.0 if rung == "sigterm" else 0.1,
    )
    async with cells(graces, threads=1, abandon_s=30.0) as rig:
        job = claimed(task, timeout_s=TIMEOUT_S if why == "timeout" else None)
        rig.start(job)
        await begun(rig, job)
        if why == "cancel":
            rig.pools.stop((job.id, job.fence), "cancel")
        else:
            rig.ahead_s = TIMEOUT_S
        ended = await rig.end(job)
        entry = failed(ended)

        assert ("timed_out" if why == "timeout" else "cancelled") == entry.outcome
        assert rung == (entry.metrics or {})["stopped_by"]
        assert (rung == "sigkill") == ("Force killed" in entry.error_message)
        assert "zombie" not in (entry.metrics or {})
        assert (False, 0, 1) == (ended.zombie, rig.pools.zombie_count, rig.pools.free_count)
        if task == "cleans_up":
            assert "cleaned up" == rig.texts(job)[-1]
        result(await rig.run(claimed("about")))


async def test_a_killed_body_takes_what_it_started_with_it() -> None:
    """The signal goes to the whole group: a program that the body started dies with it."""
    async with cells(threads=1) as rig:
        job = claimed("starts_another")
        rig.start(job)
        await begun(rig, job)
        other = int(rig.texts(job)[0])

        rig.pools.stop((job.id, job.fence), "cancel")
        await rig.end(job)

        await rig.until(lambda: not _lives(other))


def _lives(pid: int) -> bool:
    try:
        return "Z" != Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0]
    except FileNotFoundError:
        return False


async def test_rel_f17_what_a_body_changes_is_put_back() -> None:
    """Folder, environment and signal handlers of the process are as before for the next body."""
    async with cells(threads=1) as rig:
        first = result(await rig.run(claimed("changes")))

        assert first == result(await rig.run(claimed("changes")))


async def test_a_process_is_replaced_after_its_share_of_jobs() -> None:
    """After worker.max_jobs bodies a fresh process takes the place."""
    async with cells(Worker(max_jobs=2), threads=1) as rig:
        pids = [result(await rig.run(claimed("about")))["pid"] for _ in range(5)]

    assert 3 == len(set(pids))
    assert pids[0] == pids[1] != pids[2]


async def test_a_module_that_cannot_be_imported_is_told() -> None:
    """The attempt fails with what is wrong with the module, and may be tried again elsewhere."""
    async with cells(app_target="tests.worker.nowhere:app") as rig:
        entry = failed(await rig.run(claimed("about")))
    async with cells(app_target=None) as rig:
        none = failed(await rig.run(claimed("about")))

    assert ("ProcessNotStarted", True) == (entry.error_type, entry.retryable)
    assert "tests.worker.nowhere" in entry.error_message
    assert "--app" in none.error_message


async def test_a_body_stopped_before_its_process_is_up_never_begins() -> None:
    """A stop while the process is still importing is heard when it is up; the body does not run."""
    async with cells(Worker(cancel_grace_seconds=60.0), threads=1) as rig:
        job = claimed("says")
        rig.start(job)
        await rig.until(lambda: (job.id, job.fence) in rig.started)
        rig.pools.stop((job.id, job.fence), "cancel")

        assert "cancelled" == failed(await rig.end(job)).outcome
        assert "printed" not in rig.texts(job)


async def test_processes_end_with_their_pools() -> None:
    """Closing ends idle and busy processes; no thread and no process is left."""
    async with cells(threads=2) as rig:
        job = claimed("holds")
        rig.start(job)
        await begun(rig, job)
        pid = result(await rig.run(claimed("about")))["pid"]
        assert _lives(pid)

    assert not _lives(pid)
    assert not [thread for thread in threading.enumerate() if thread.name.startswith("windlass-starter")]
