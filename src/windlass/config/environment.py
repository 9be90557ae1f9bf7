"""The environment of our processes: which of its variables are secret, and how a process keeps them from its tasks.

A server knows the database and the first key, a worker its own key; tasks know neither. Variables are read once, when
the settings are loaded, and then overwritten where the kernel shows them to other processes of the same user (/proc).
What a process needs after that is in its memory, which no other may read. Threads of a worker share its memory: a task
that must not be trusted is isolated in a process.
"""

from __future__ import annotations

import ctypes
import os
import re
import sys
from collections.abc import Mapping

from windlass.config.redact import Redactor

_SECRETS = Redactor()
_OURS = re.compile(r"WINDLASS_(.*(KEY|DATABASE)|SECURITY_(?!REDACT$))", re.IGNORECASE)
_WORKERS = frozenset({"WINDLASS_KEY", "WINDLASS_KEY_FILE", "WINDLASS_CLIENT_KEY", "WINDLASS_CLIENT_KEY_FILE"})
_PR_SET_DUMPABLE = 4


def is_secret(name: str) -> bool:
    """Say whether a variable is ours and must not reach tasks: keys, databases, how the server is secured."""
    return bool(_OURS.match(name)) or (name.upper().startswith("WINDLASS_") and _SECRETS.hides(name))


def for_tasks(environment: Mapping[str, str]) -> dict[str, str]:
    """Return the environment without what is secret."""
    return {name: value for name, value in environment.items() if not is_secret(name)}


def for_workers(environment: Mapping[str, str]) -> dict[str, str]:
    """Return the environment of workers: without what is secret, but with the key that they show."""
    return {name: value for name, value in environment.items() if name in _WORKERS or not is_secret(name)}


def hide_secrets() -> None:
    """Let no other process of this user read the secrets of this one, neither where it began nor in its memory.

    `os.environ` stays as it is: for a process that runs no task.
    """
    libc = ctypes.CDLL(None)
    libc.getenv.restype = ctypes.c_void_p
    for name in filter(is_secret, os.environ):
        # The place where the kernel put it; removing a variable leaves its text there.
        if (at := libc.getenv(os.fsencode(name))) is not None:
            ctypes.memset(at, 0, len(ctypes.string_at(at)))
    if sys.platform == "linux":
        libc.prctl(_PR_SET_DUMPABLE, 0)


def forget_secrets() -> None:
    """Hide the secrets, and take them out of the environment of this process and of those that it starts."""
    hide_secrets()
    for name in list(filter(is_secret, os.environ)):
        del os.environ[name]
