"""Where a rule of style does not hold, and why. An entry that is no longer needed fails the test."""

from __future__ import annotations

# path: why the file is longer than its like
LONG_FILES: dict[str, str] = {
    "src/windlass/queue/workers.py": "all that a session says, from register to close, over the same few statements",
    "src/windlass/wire/jobs.py": "all that is said of a job over HTTP, most of it the fields of one answer",
    "src/windlass/worker/pools.py": "where all kinds of bodies begin, wait, end and are stopped, under one lock",
    "src/windlass/worker/keeper.py": "one runner from its start to its end: session, heartbeats, news, death",
}

# path::name: why the function is longer than its like
LONG_FUNCTIONS: dict[str, str] = {}

# path: why time or chance comes from outside here
IMPURE: dict[str, str] = {
    "src/windlass/clock.py": "the one place that asks the machine for the time",
    "src/windlass/ids.py": "random bits are a parameter; this names its default",
    "src/windlass/queue/keys.py": "random bytes are a parameter; this names its default, `secrets`",
}

# path: why statements stand in Python here
SQL_IN_PYTHON: dict[str, str] = {
    "src/windlass/queue/history.py": "a filter on a column of `job`, which is read only for what was asked for",
}

# path: why this waits for real time
SLEEPS: dict[str, str] = {
    "tests/cli/running.py": "looks again whether another process has said or done something, and depends on no span",
}
