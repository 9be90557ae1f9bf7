"""An application whose tasks run in processes of their own, for tests of isolation."""

from __future__ import annotations

import asyncio
import ctypes
import logging
import os
import signal
import subprocess
import sys
import threading
from pathlib import Path
from typing import Any

from windlass.client.app import App
from windlass.client.context import Context, Stopped

app = App()
told = logging.getLogger("elsewhere")


def wait() -> None:
    """Wait for ever, in Python code."""
    while True:
        threading.Event().wait(0.01)


@app.task(isolation="process")
def about(context: Context, x: int = 0) -> dict[str, Any]:
    """Say where it runs and what it knows."""
    secrets = [name for name in os.environ if name.startswith("WINDLASS_")]
    return {"pid": os.getpid(), "leads": os.getsid(0) == os.getpid(), "x": x, "env": secrets, "id": str(context.id)}


@app.task(isolation="process")
def where_jobs_go() -> str:
    """Say where it would submit jobs."""
    return app.where


@app.task(isolation="process")
async def about_async(context: Context) -> int:
    """Return the number of its process, from a coroutine."""
    await asyncio.sleep(0)
    return os.getpid()


@app.task(isolation="process")
def says(context: Context) -> None:
    """Write everywhere."""
    print("printed")
    print("to stderr", file=sys.stderr)
    told.info("logged")
    context.log.warning("by the context")
    os.write(1, b"by the system\n")
    libc = ctypes.CDLL(None)
    libc.printf(b"by C\n")
    subprocess.run(["echo", "by another"], check=True)
    print("no end", end="")
    context.progress(0.5)
    context.checkpoint = {"row": 3}


@app.task(isolation="process")
def snoozes(context: Context) -> None:
    """Ask for a later run."""
    context.snooze(30, reason="later")


@app.task(isolation="process")
def raises(context: Context) -> None:
    """Fail."""
    raise ValueError("in the cell")


@app.task(isolation="process")
def dies(context: Context, how: str) -> None:
    """Take its own process down."""
    if how == "exit":
        os._exit(3)
    elif how == "segfault":
        os.kill(os.getpid(), signal.SIGSEGV)
    elif how == "group":
        os.killpg(0, signal.SIGKILL)
    elif how == "closes":
        os.closerange(0, 256)
    else:
        ctypes.string_at(0)


@app.task(isolation="process")
def checks(context: Context) -> None:
    """Look at the flag."""
    print("begun")
    while True:
        context.check()


@app.task(isolation="process")
def cleans_up(context: Context) -> None:
    """Never look at the flag, and clean up at SIGTERM."""
    print("begun")
    try:
        wait()
    except Stopped:
        print("cleaned up")
        raise


@app.task(isolation="process")
async def sleeps(context: Context) -> None:
    """Sleep as a coroutine."""
    print("begun")
    await asyncio.Event().wait()


@app.task(isolation="process")
def ignores(context: Context) -> None:
    """Ignore SIGTERM and swallow what is raised."""
    signal.signal(signal.SIGTERM, signal.SIG_IGN)
    print("begun")
    while True:
        try:
            wait()
        except BaseException as error:
            told.info("swallowed %r", error)


@app.task(isolation="process")
def holds(context: Context) -> None:
    """Hold the interpreter in a C call that no signal interrupts: a lock that is taken twice."""
    mutex = ctypes.create_string_buffer(256)
    library = ctypes.PyDLL(None)
    library.pthread_mutex_lock(mutex)
    print("begun")
    library.pthread_mutex_lock(mutex)


@app.task(isolation="process")
def starts_another(context: Context) -> None:
    """Start a process that outlives it, tell its number, and wait."""
    other = subprocess.Popen(["sleep", "600"])
    print(other.pid)
    wait()


@app.task(isolation="process")
def waits_for(context: Context, path: str) -> int:
    """Tell its number, and return it when there is such a file."""
    print(os.getpid())
    while not Path(path).exists():
        threading.Event().wait(0.01)
    return os.getpid()


@app.task(isolation="process")
def leaves(context: Context, what: str) -> int:
    """Leave something behind that goes on."""
    if what == "thread":
        threading.Thread(target=wait, daemon=True).start()
    else:
        subprocess.Popen(["sleep", "600"])
    return os.getpid()


@app.task(isolation="process")
def sets_alarm(context: Context) -> list[Any]:
    """Set a timer and its handler, and say how they were found."""
    before = [os.getpid(), signal.getitimer(signal.ITIMER_REAL)[0], str(signal.getsignal(signal.SIGALRM))]
    signal.signal(signal.SIGALRM, lambda *_: None)
    signal.setitimer(signal.ITIMER_REAL, 600.0)
    return before


@app.task(isolation="process")
def changes(context: Context) -> list[str]:
    """Change what is the process's, and say how it was found."""
    before = [os.getcwd(), os.environ.get("CHANGED", "")]  # noqa: PTH109
    os.chdir("/")
    os.environ["CHANGED"] = "yes"
    signal.signal(signal.SIGTERM, signal.SIG_IGN)
    return before
