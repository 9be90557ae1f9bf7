"""`windlass demo`: everything once, for real, in under a minute: a server, workers, some hundred jobs, and their ends.

It has a folder of its own and leaves nothing behind. It checks what it shows: every job must end as its task, or the
work kind, says; if one does not, the exit code is 1.
"""

from __future__ import annotations

import re
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import click
from rich.console import Console
from rich.live import Live

from windlass.cli.banner import SAMPLE
from windlass.cli.calls import Server
from windlass.cli.demojobs import JOBS, Planned, kept_environment, kinds_file
from windlass.cli.demoshow import progress_of, summary, wrong_ends
from windlass.cli.jobreport import job_fields, story
from windlass.cli.pool import with_parent
from windlass.cli.shown import console
from windlass.config import load
from windlass.errors import SetupError, Unavailable, WindlassError
from windlass.job import FINAL_STATES

LOOK_S = 0.25
TOLD_S = 2.0
"""How often progress is told where there is no terminal."""
PATIENCE_S = 100.0
"""Past it something hangs."""
MOST_SAID = 8000
"""Characters shown of what server and workers said, where something is wrong."""
UP = re.compile(r"Windlass is up at (\S+)")
READY = "Workers are ready."
TAG = "demo"
SETTINGS = """\
[database]
url = "sqlite:///{folder}/demo.db"

[server]
port = 0

[workers]
default_count = 2
max_count = 4
threads = 8

[retry]
base_seconds = 0.2

"""


@click.command()
def demo() -> None:
    """Show everything once: start a server and workers, run some hundred jobs, print how they ended.

    Failures, retries and cancels are among them. It takes under a minute and leaves nothing behind.

    Example: windlass demo
    """
    out = console()
    with tempfile.TemporaryDirectory(prefix="windlass-demo-") as name, _brought_up(Path(name)) as url:
        with Server(load({"server.url": url}, {}, Path(name))) as server:
            out.print(f"A server and two workers run at {url}, on a SQLite file of their own.")
            ids = _submit(server, out)
            ended = _watch(server, out, planned_count=len(ids))
            out.print()
            out.print(summary(ended))
            _show_one(server, out, ended)
        wrong = wrong_ends(ended)
    for text in wrong:
        click.echo(text, err=True)
    if wrong:
        click.get_current_context().exit(1)
    out.print()
    out.print(f"All {len(ended)} jobs ended as they should; server and workers have stopped. Next: windlass up")


@contextmanager
def _brought_up(folder: Path) -> Iterator[str]:
    """Run `windlass up` for a block; yield its URL when its workers are ready."""
    (folder / "windlass.toml").write_text(SETTINGS.format(folder=folder) + kinds_file())
    said = folder / "up.log"
    with said.open("wb") as file:
        process = subprocess.Popen(
            [sys.executable, "-m", "windlass", "up", SAMPLE, "--config", str(folder / "windlass.toml")],
            stdin=subprocess.DEVNULL,
            stdout=file,
            stderr=subprocess.STDOUT,
            env=kept_environment(),
            start_new_session=True,
            preexec_fn=with_parent(signal.SIGTERM),
        )
    try:
        yield _url(process, said)
        process.send_signal(signal.SIGINT)
        if process.wait(PATIENCE_S) != 0:
            raise SetupError("Server and workers did not stop as they should.")
    except WindlassError:
        click.echo("What server and workers said:", err=True)
        click.echo(said.read_text(errors="replace")[-MOST_SAID:], err=True)
        raise
    finally:
        if process.poll() is None:
            process.kill()
            process.wait()


def _url(process: subprocess.Popen[bytes], said: Path) -> str:
    until = time.monotonic() + PATIENCE_S
    while process.poll() is None and time.monotonic() < until:
        text = said.read_text(errors="replace")
        found = UP.search(text)
        if found and READY in text:
            return found[1]
        time.sleep(LOOK_S / 5)
    raise SetupError("Server and workers did not start.")


def _submit(server: Server, out: Console) -> list[str]:
    """Submit all jobs, cancel those that are planned to be cancelled by hand, and return the ids."""
    planned = [(one, number) for one in JOBS for number in range(one.count)]
    made = server.post("/jobs/batch", {"jobs": [_request(one, number) for one, number in planned]})["jobs"]
    ids = [job["id"] for job in made]
    by_hand = [job_id for job_id, (one, _) in zip(ids, planned, strict=True) if one.is_cancelled_by_hand]
    for job_id in by_hand:
        server.post(f"/jobs/{job_id}/cancel", {"reason": "The demonstration does not need it."})
    out.print(f"{len(ids)} jobs of {len({one.task for one in JOBS})} tasks were submitted, {len(by_hand)} cancelled.")
    return ids


def _request(one: Planned, number: int) -> dict[str, Any]:
    job: dict[str, Any] = {"task": one.task, "tags": [TAG]}
    if one.payload is not None:
        job["payload"] = one.payload(number)
    if one.is_cancelled_by_hand:
        job["delay"] = 3600
    return job


def _watch(server: Server, out: Console, *, planned_count: int) -> list[Any]:
    """Show progress until every job has ended; return the jobs."""
    until = time.monotonic() + PATIENCE_S
    told_at = 0.0
    with Live(console=out, auto_refresh=False, transient=True) as live:
        while True:
            # The sample's own schedule makes jobs too.
            jobs = list(server.pages("/jobs", "jobs", tag=TAG))
            ended = [job for job in jobs if job["state"] in FINAL_STATES]
            now = time.monotonic()
            if out.is_terminal:
                live.update(progress_of(jobs), refresh=True)
            elif now - told_at >= TOLD_S or len(ended) == planned_count:
                told_at = now
                click.echo(f"{len(ended)} of {planned_count} jobs have ended.")
            if len(ended) == planned_count:
                return jobs
            if now > until:
                raise Unavailable(f"After {PATIENCE_S:g} s only {len(ended)} of {planned_count} jobs have ended.")
            time.sleep(LOOK_S)


def _show_one(server: Server, out: Console, jobs: list[Any]) -> None:
    job = next(job for job in jobs if job["task"] == "flaky")
    report = server.get(f"/jobs/{job['id']}/report")
    out.print()
    out.print("One of them, as `windlass jobs show` tells it:")
    out.print()
    out.print(job_fields(job))
    for part in story(report):
        out.print()
        out.print(part)
