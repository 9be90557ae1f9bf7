"""The stage of the benchmark: bodies count themselves, players are started and heard, costs are of whole families."""

from __future__ import annotations

import asyncio
import os
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from windlass.bench.peers import stage
from windlass.bench.wholecost import cpu_s, family, memory_mb, postmaster
from windlass.bench.wholepeers import Peer, installed
from windlass.bench.wholeplay import playing
from windlass.errors import SetupError

MARK = "import sys; sys.path.insert(0, sys.argv[1]); import stage; stage.Tally(sys.argv[2]).mark()"
SAY_READY = "print('ready', flush=True); import sys; print(sys.stdin.readline().strip(), flush=True); sys.stdin.read()"


def test_bodies_of_threads_and_processes_are_counted(tmp_path: Path) -> None:
    """Every body counts once, in whichever thread and process, with the first and the latest instant."""
    tally = stage.Tally(str(tmp_path))
    with ThreadPoolExecutor(8) as threads:
        list(threads.map(lambda _: tally.mark(), range(1000)))
    here = stage.seen(str(tmp_path))

    folder = str(Path(stage.__file__).parent)
    subprocess.run([sys.executable, "-c", MARK, folder, str(tmp_path)], check=True)

    assert 1000 == here.jobs
    assert 1001 == stage.seen(str(tmp_path)).jobs
    assert here.first_at <= here.last_at < stage.seen(str(tmp_path)).last_at


def test_nothing_is_seen_before_a_body_begins(tmp_path: Path) -> None:
    """Other files in the folder are no bodies."""
    (tmp_path / "loaded-1").touch()

    assert stage.Seen(0, 0.0, 0.0) == stage.seen(str(tmp_path))


async def test_a_player_is_ready_and_begins_at_the_word(tmp_path: Path) -> None:
    """It waits until it is told."""
    async with playing([sys.executable, "-c", SAY_READY], name="it", folder=str(tmp_path)) as player:
        await player.ready()
        player.go()

        assert "go" == await player.line(within_s=60)


async def test_a_player_that_ends_tells_why(tmp_path: Path) -> None:
    """The last line it wrote comes with the error."""
    command = [sys.executable, "-c", "import sys; sys.exit('No moon.')"]

    async with playing(command, name="it", folder=str(tmp_path)) as player:
        with pytest.raises(SetupError, match=r"it ended: No moon\."):
            await player.ready()
    async with playing(command, name="it", folder=str(tmp_path)) as player:
        with pytest.raises(SetupError, match=r"it ended with 1: No moon\."):
            await player.finished(within_s=60)


async def test_a_player_that_says_nothing_is_given_up(tmp_path: Path) -> None:
    """Nobody waits for ever."""
    async with playing([sys.executable, "-c", SAY_READY], name="it", folder=str(tmp_path)) as player:
        await player.ready()

        with pytest.raises(SetupError, match=r"it said nothing for 0\.01 s"):
            await player.line(within_s=0.01)


async def test_a_player_ends_with_its_block(tmp_path: Path) -> None:
    """Nothing is left running."""
    async with playing([sys.executable, "-c", SAY_READY], name="it", folder=str(tmp_path)) as player:
        await player.ready()
        pid = player.pid

    with pytest.raises(ProcessLookupError):
        os.kill(pid, 0)


@pytest.mark.skipif(sys.platform != "linux", reason="read from /proc")
async def test_a_family_is_a_process_with_its_children(tmp_path: Path) -> None:
    """What they use is counted together."""
    async with playing([sys.executable, "-c", SAY_READY], name="it", folder=str(tmp_path)) as player:
        await player.ready()
        pids = family(os.getpid())

        assert os.getpid() == pids[0]
        assert player.pid in pids
        assert memory_mb(pids) > memory_mb([player.pid]) > 0
        assert cpu_s(pids) > 0


@pytest.mark.skipif(sys.platform != "linux", reason="read from /proc")
async def test_the_process_of_the_database_is_found(postgres_url: str) -> None:
    """It is the parent of a backend, where both are on this machine."""
    found = await postmaster(postgres_url)

    if found is None:
        pytest.skip("the server is not on this machine")
    assert "postgres" in await asyncio.to_thread(Path(f"/proc/{found}/comm").read_text)


@pytest.mark.exhaustive
async def test_a_peer_that_cannot_be_installed_says_so(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Its environment is tried again the next time."""
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    peer = Peer(
        name="Other", script="run_other.py", requires=("./nowhere",), store="sqlite", workers=1, note="installs nothing"
    )

    with pytest.raises(SetupError, match="nowhere"):
        await installed(peer)

    assert [] == await asyncio.to_thread(lambda: list(tmp_path.rglob("installed")))


async def test_celery_needs_a_redis_server(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """Without one nothing is installed."""
    monkeypatch.setenv("PATH", str(tmp_path))
    peer = Peer(name="Other", script="run_other.py", requires=(), store="redis", workers=1, note="")

    with pytest.raises(SetupError, match="no redis-server"):
        await installed(peer)
