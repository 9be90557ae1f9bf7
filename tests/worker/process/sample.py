"""The application of these tests: tasks that tell the test that they have begun, and wait for its word.

Each connects to the gate of the test (installation.py), so that nobody waits for time to pass.
"""

from __future__ import annotations

import ctypes
import json
import os
import signal
import socket

from windlass import App, Context

app = App()
_HOLDING = ctypes.PyDLL(None)
"""Calls through it keep the interpreter, as a C function does that does not let go of it."""


def _tell(port: int, context: Context) -> socket.socket:
    told = {"pid": os.getpid(), "job": str(context.job.id), "attempt": context.job.attempt}
    gate = socket.create_connection(("127.0.0.1", port))
    gate.sendall(json.dumps(told).encode() + b"\n")
    return gate


@app.task
def double(x: int) -> int:
    """Return twice as much."""
    return 2 * x


@app.task
def crash() -> None:
    """Kill the process that runs it."""
    os.kill(os.getpid(), signal.SIGKILL)


@app.task
def wait(context: Context, port: int) -> str:
    """Wait for the word of the test, and return it; a cancel or a stop ends the wait."""
    with _tell(port, context) as gate:
        gate.settimeout(0.1)
        while True:
            context.check()
            try:
                return gate.recv(100).decode()
            except TimeoutError:
                continue


@app.task
def hold(context: Context, port: int, ms: int) -> int:
    """Hold the interpreter for so long."""
    with _tell(port, context):
        _HOLDING.poll(None, 0, ms)
        return ms
