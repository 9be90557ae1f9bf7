"""`make bench`: the benchmark with a PostgreSQL of its own, as durable as in production.

The command itself starts no server. This finds the binaries as the tests do and names the server to the command by
WINDLASS_TEST_POSTGRES_URL; a server that is named already, or a --database, is used instead.
`make bench ARGS="http …"` measures a server over HTTP, `ARGS="whole …"` all of it with workers, `ARGS="schedules …"`
schedules, else it is the store.
"""

from __future__ import annotations

import os
import sys
from contextlib import ExitStack

from tests import cluster
from tests.postgres_run import URL_VARIABLE
from windlass.cli import cli


def main(arguments: list[str]) -> None:
    """Run the command, with a cluster around it if it needs one."""
    with ExitStack() as stack:
        given = URL_VARIABLE in os.environ or any(argument.startswith("--database") for argument in arguments)
        binaries = None if given else cluster.find()
        if binaries is not None:
            os.environ[URL_VARIABLE] = stack.enter_context(cluster.running(binaries, durable=True)).url
        command = [] if arguments[:1] in (["store"], ["http"], ["whole"], ["schedules"]) else ["store"]
        cli.main(["bench", *command, *arguments], prog_name="windlass")


if __name__ == "__main__":
    main(sys.argv[1:])
