"""The workers of `windlass up`: what its end says when a signal comes before they can hear it."""

from __future__ import annotations

import os
import sys

import pytest

from windlass.cli.pool import Pool

DEAF = [sys.executable, "-c", "import signal; signal.pause()"]
"""A child that does not know signals yet: they end it."""


@pytest.mark.parametrize(("count", "code"), [(1, 0), (3, 130)])
async def test_a_signal_that_comes_too_soon_is_an_orderly_end(count: int, code: int) -> None:
    """A child that a signal ended before it had anything is exit code 0; one that was to be killed, 130."""
    pool = Pool(DEAF, os.environ, said=lambda _: None, passed=lambda _: None)
    for _ in range(count):
        pool.stop()

    assert code == await pool.run()
