"""Secrets stay out of reach of tasks: in the environment, in /proc, in inherited descriptors (T8, T21)."""

from __future__ import annotations

import contextlib
import subprocess
import sys
from pathlib import Path

import msgspec
import pytest
from click.testing import CliRunner

from tests.cli.running import READY, UP, Hands, running, waited
from tests.proofs.processes import environment
from windlass.cli import cli
from windlass.cli.up import Upping, worker_environment
from windlass.cli.values import DATABASE_URL
from windlass.config import Settings, load
from windlass.config.environment import for_workers, is_secret
from windlass.config.settings import Client, Database, Security
from windlass.queue.keys import make_token
from windlass.worker.child import for_runners

APP = """
import os
from pathlib import Path
from windlass import App
app = App()

def parents():
    pid = os.getpid()
    while pid > 1:
        yield pid
        pid = int(Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[1])

def places():
    yield "os.environ", repr(dict(os.environ)).encode()
    for pid in parents():
        for name in ("environ", "cmdline"):
            try:
                yield f"{name} of {Path(f'/proc/{pid}/comm').read_text()}", Path(f"/proc/{pid}/{name}").read_bytes()
            except PermissionError:
                pass

def look(canaries):
    found = [f"{canary} in {where}" for where, data in places() for canary in canaries if canary.encode() in data]
    files = [os.readlink(f"/proc/self/fd/{fd}") for fd in os.listdir("/proc/self/fd") if fd.isdecimal()
             and os.path.lexists(f"/proc/self/fd/{fd}")]
    return {"found": found, "processes": len(list(parents())), "files": [f for f in files if f.startswith("/")],
            "sockets": sum(f.startswith("socket:") for f in files), "mine": os.environ.get("STRIPE_API_KEY")}

@app.task
def in_a_thread(canaries: list[str]) -> dict:
    return look(canaries)

@app.task(isolation="process")
def in_a_process(canaries: list[str]) -> dict:
    return look(canaries)
"""


@pytest.mark.skipif(sys.platform != "linux", reason="there is no /proc elsewhere")
def test_rel_t8_a_task_finds_no_secret_of_server_and_worker(tmp_path: Path) -> None:
    """M7: under `windlass up` neither a thread nor an isolated process finds the server's or the worker's secrets.

    Looked through: its environment, that of every process above it, their command lines, and its open files.
    """
    bootstrap, key = make_token(), make_token()
    canaries = [bootstrap[-20:], key[-20:], "canary-database"]
    (tmp_path / "tasks.py").write_text(APP)
    settings = {
        "WINDLASS_SECURITY_BOOTSTRAP_KEY": bootstrap,
        "WINDLASS_KEY": key,
        "WINDLASS_DATABASE_URL": f"sqlite:///{tmp_path}/canary-database.db",
        "STRIPE_API_KEY": "the user's own",
    }

    with (
        running(tmp_path, "up", "tasks:app", "--port", "0", "--workers", "1", settings=settings) as process,
        contextlib.closing(Hands(process.said(UP)[1])) as hands,
    ):
        process.said(READY)
        looks = [
            waited(lambda job=job: hands.job(job)["result"], "its end", process)  # type: ignore[misc]
            for job in [hands.submit(task, payload={"canaries": canaries}) for task in ("in_a_thread", "in_a_process")]
        ]

    assert [[], []] == [look["found"] for look in looks]
    assert [{"/dev/null"}] * 2 == [set(look["files"]) for look in looks]
    assert 1 == looks[1]["sockets"]
    assert all(look["processes"] >= 3 for look in looks)
    assert {"the user's own"} == {look["mine"] for look in looks}


@pytest.mark.parametrize(
    "command",
    [
        ["server"],
        ["up"],
        ["dev"],
        ["migrate"],
        ["check"],
        ["keys", "list"],
        ["keys", "create", "ann"],
        ["schedules", "import", "jsonl", "-"],
    ],
    ids=" ".join,
)
@pytest.mark.parametrize(
    "url",
    ["postgresql://u:canary@127.0.0.1:9/d", "postgresql://u@127.0.0.1:9/d?password=canary"],
    ids=["url", "option"],
)
def test_rel_t21_a_password_on_the_command_line_is_refused(command: list[str], url: str) -> None:
    """T21: every user of the machine reads it there, and tasks do; the refusal says how else, and not the password."""
    refused = CliRunner().invoke(cli, [*command, "--database", url])

    assert 2 == refused.exit_code
    assert "WINDLASS_DATABASE_URL" in " ".join(refused.stderr.split())
    assert "canary" not in refused.output


def test_a_url_without_a_password_is_taken_from_the_command_line() -> None:
    """Users, ports, several hosts and options are no secrets, nor is an @ in the path of a file."""
    given = [
        "postgresql://ann@h:5432/jobs",
        "postgresql://ann@h1:1,h2:2/jobs?sslmode=verify-full",
        "sqlite:///a:b@c.db",
        "sqlite:////var/jobs.db?synchronous=off",
        "not a url",
    ]

    assert given == [DATABASE_URL.convert(url, None, None) for url in given]


def test_workers_get_what_they_need_and_no_more() -> None:
    """M7: the key of their own and the names to redact stay; what only a server needs is left out, by file too."""
    given = {
        "PATH": "1",
        "WINDLASS_KEY": "2",
        "WINDLASS_CLIENT_KEY_FILE": "3",
        "WINDLASS_SECURITY_REDACT": "4",
        "WINDLASS_WORKER_THREADS": "5",
        "WINDLASS_DATABASE_URL": "-",
        "WINDLASS_DATABASE_URL_FILE": "-",
        "WINDLASS_SECURITY_BOOTSTRAP_KEY": "-",
        "WINDLASS_SECURITY_BOOTSTRAP_KEY_FILE": "-",
        "WINDLASS_SECURITY_TLS_CERT": "-",
        "WINDLASS_SECURITY_TLS_KEY": "-",
        "WINDLASS_SECURITY_KEYS_REQUIRED": "-",
    }

    assert ["1", "2", "3", "4", "5"] == sorted(for_workers(given).values())
    assert {"1", "4", "5"} == {value for name, value in given.items() if not is_secret(name)}


def test_the_workers_of_up_do_not_know_the_servers_secrets(tmp_path: Path) -> None:
    """M7: `windlass up` hands its workers their own key, and neither its database nor its first key."""
    upping = Upping(loaded=load({}, {}, tmp_path), app=None, is_reloading=False, config_path=None)

    given = worker_environment(upping, {"WINDLASS_DATABASE_URL": "canary", "WINDLASS_KEY": "its own"})

    assert "its own" == given["WINDLASS_KEY"]
    assert "canary" not in given.values()


def test_a_runner_is_told_nothing_that_only_a_server_needs() -> None:
    """M7: the settings of a runner have its key and what is to be redacted, not the database or the first key."""
    settings = Settings(
        database=Database(url="postgresql://u:canary@h/d"),
        security=Security(bootstrap_key="canary", tls_cert="canary", tls_key="canary", redact=("pin",)),
        client=Client(key="its own"),
    )

    told = for_runners(settings)

    assert b"canary" not in msgspec.json.encode(told)
    assert ("its own", ("pin",)) == (told.client.key, told.security.redact)


@pytest.mark.skipif(sys.platform != "linux", reason="there is no /proc elsewhere")
def test_a_process_forgets_its_secrets() -> None:
    """What a process was started with is gone from its environment, from its children's and from /proc."""
    code = (
        "import os, subprocess, sys\n"
        "from pathlib import Path\n"
        "from windlass.config.environment import forget_secrets\n"
        "forget_secrets()\n"
        "print(Path('/proc/self/environ').read_bytes())\n"
        "print(dict(os.environ))\n"
        "print(subprocess.run(['env'], capture_output=True).stdout)\n"
    )
    variables = environment({"WINDLASS_KEY": "canary-key", "WINDLASS_URL": "http://kept"})

    said = subprocess.run([sys.executable, "-c", code], env=variables, capture_output=True, text=True, check=True)

    assert 0 == said.stdout.count("canary")
    assert 3 == said.stdout.count("http://kept")
