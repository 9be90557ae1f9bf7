"""`windlass top` on a terminal: a picture that is drawn anew, until a key is pressed."""

from __future__ import annotations

import os
import pty
import select
import subprocess
import sys
import time
from pathlib import Path

import pytest

from tests.cli.running import PATIENCE_S, Hands, hear_ctrl_c
from tests.proofs.processes import environment


@pytest.mark.parametrize("key", [b"q", b"\x03"], ids=["q", "ctrl-c"])
def test_a_key_ends_the_live_view(url: str, hands: Hands, tmp_path: Path, *, key: bytes, queue: str) -> None:
    """It shows what waits, is drawn anew, gives the terminal back and ends with exit code 0."""
    hands.submit("add", queue=queue)
    ours, theirs = pty.openpty()
    command = [sys.executable, "-m", "windlass", "top", "--url", url]
    variables = environment({"TERM": "xterm", "COLUMNS": "200", "LINES": "50"})
    with subprocess.Popen(
        command, cwd=tmp_path, env=variables, stdin=theirs, stdout=theirs, stderr=theirs, start_new_session=True,
        preexec_fn=_take_terminal,
    ) as process:  # fmt: skip
        os.close(theirs)
        try:
            seen = _read_until(ours, b"Windlass at", count=2)
            os.write(ours, key)
            # A terminal that nobody reads is full after a while, and who writes to it waits.
            _read_to_the_end(ours)
            code = process.wait(PATIENCE_S)
        finally:
            process.kill()
    os.close(ours)

    assert 0 == code
    assert queue.encode() in seen


def _take_terminal() -> None:
    import fcntl
    import termios

    hear_ctrl_c()
    fcntl.ioctl(0, termios.TIOCSCTTY, 0)


def _read_until(fd: int, text: bytes, *, count: int) -> bytes:
    seen, until = b"", time.monotonic() + PATIENCE_S
    while seen.count(text) < count:
        ready, _, _ = select.select([fd], [], [], max(0.0, until - time.monotonic()))
        assert ready, f"waited in vain for {text!r} in {seen!r}"
        seen += os.read(fd, 65_536)
    return seen


def _read_to_the_end(fd: int) -> None:
    until = time.monotonic() + PATIENCE_S
    while True:
        ready, _, _ = select.select([fd], [], [], max(0.0, until - time.monotonic()))
        assert ready, "the view goes on"
        try:
            if not os.read(fd, 65_536):
                return
        except OSError:  # the other end is closed
            return
