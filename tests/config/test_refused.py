"""What settings are refused, and that the message names key, value and source."""

from __future__ import annotations

from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from windlass.config import load
from windlass.config.keys import KEYS, WITHOUT_EFFECT
from windlass.errors import InvalidInput, SetupError, WindlassError

CANARY = "canary7hunter2"


def refusal(directory: Path, environment: dict[str, str], flags: dict[str, object] | None = None) -> str:
    """Return the message with which these are refused."""
    with pytest.raises(WindlassError) as caught:
        load(flags or {}, environment, directory)
    return str(caught.value)


@pytest.mark.parametrize(
    ("variable", "text"),
    [
        ("WINDLASS_SERVER_PORT", "70000"),
        ("WINDLASS_SERVER_PORT", "-1"),
        ("WINDLASS_SERVER_PORT", "80.5"),
        ("WINDLASS_SERVER_PORT", "١٢٣"),
        ("WINDLASS_SERVER_PORT", "1_0"),
        ("WINDLASS_SERVER_PORT", "http"),
        ("WINDLASS_SERVER_PORT", "9" * 5000),
        ("WINDLASS_SERVER_URL", "localhost:8000"),
        ("WINDLASS_SERVER_HOST", "a b"),
        ("WINDLASS_SERVER_VOCABULARY", "e"),
        ("WINDLASS_SERVER_INSECURE", "maybe"),
        ("WINDLASS_DATABASE_POOL_SIZE", "101"),
        ("WINDLASS_DATABASE_URL", "mysql://h/d"),
        ("WINDLASS_DATABASE_URL", "sqlite://"),
        ("WINDLASS_WORKER_QUEUES", "a/b"),
        ("WINDLASS_WORKER_QUEUES", ","),
        ("WINDLASS_WORKER_CLAIM_BATCH", "0"),
        ("WINDLASS_WORKER_WAIT_SECONDS", "21"),
        ("WINDLASS_WORKER_LEASE_SECONDS", "nan"),
        ("WINDLASS_WORKER_LEASE_SECONDS", "soon"),
        ("WINDLASS_WORKER_LEASE_SECONDS", "2d"),
        ("WINDLASS_JOBS_MAX_ATTEMPTS", "0"),
        ("WINDLASS_JOBS_TIMEOUT_SECONDS", "1.5s"),
        ("WINDLASS_DUTIES_LEASE_SECONDS", "0"),
        ("WINDLASS_DUTIES_MODE", "leader"),
        ("WINDLASS_RETRY_JITTER", "1.1"),
        ("WINDLASS_METRICS_PREFIX", "9-"),
        ("WINDLASS_METRICS_STATSD_ADDRESS", "localhost"),
        ("WINDLASS_SECURITY_KEYS_REQUIRED", "sometimes"),
        ("WINDLASS_LOG_LEVEL", "loud"),
        ("WINDLASS_MODE", "both"),
        ("JOB_HEARTBEAT_TIMEOUT", "x"),
    ],
)
def test_a_wrong_value_is_named_with_its_key_and_source(variable: str, text: str, tmp_path: Path) -> None:
    """Type and range are checked; the message says what was given, by whom, and what is expected."""
    message = refusal(tmp_path, {variable: text})

    assert f"(from {variable}). Expected: " in message
    assert any(message.startswith(f"{key}: ") for key in KEYS)
    assert repr(text)[:20] in message or "sqlite://" in message or "," == text
    assert len(message) < 400


@pytest.mark.parametrize(
    ("toml", "key"),
    [
        ("[server]\nport = 70000\n", "server.port"),
        ("[server]\nport = '8000x'\n", "server.port"),
        ("[server]\nport = true\n", "server.port"),
        ("[server]\nport = {a = 1}\n", "server.port"),
        ("[server]\nport = 2026-01-01\n", "server.port"),
        ("[server]\nport = 0xffffffffffffffffffffffff\n", "server.port"),
        ("[server]\ninsecure = 1\n", "server.insecure"),
        ("[worker]\nqueues = [1]\n", "worker.queues"),
        ("[worker]\nqueues = []\n", "worker.queues"),
        ("[worker]\nlease_seconds = nan\n", "worker.lease_seconds"),
        ("[worker]\nlease_seconds = inf\n", "worker.lease_seconds"),
        ('[worker]\nid = "a\\u0000b"\n', "worker.id"),
        ('[worker]\nlabels = ["a\\u001b[31m"]\n', "worker.labels"),
        ("[jobs]\nmax_retries = -1\n", "jobs.max_retries"),
        ("[jobs]\nmax_retries = 'x'\n", "jobs.max_retries"),
        ("mode = 5\n", "mode"),
        ("[[mode]]\na = 1\n", "mode"),
    ],
)
def test_a_wrong_value_in_the_file_is_named(toml: str, key: str, tmp_path: Path) -> None:
    """The file's values have the types of TOML; a text is read only where it can be."""
    (tmp_path / "windlass.toml").write_text(toml)

    message = refusal(tmp_path, {})

    assert message.startswith(f"{key}: ")
    assert "(from windlass.toml)" in message
    assert message.isprintable()


@pytest.mark.parametrize(
    ("toml", "message"),
    [
        ("[server]\nprot = 1\n", "server.prot: there is no such setting (in windlass.toml); did you mean server.port?"),
        ("[sever]\nport = 1\n", "sever: there is no such setting (in windlass.toml); did you mean "),
        ("port = 1\n", "port: there is no such setting (in windlass.toml); "),
        ("server = 1\n", "server: there is no such setting (in windlass.toml); did you mean "),
        ("[server.port]\nx = 1\n", "server.port: {'x': 1} is not accepted (from windlass.toml)"),
        ('"a\\u001b" = 1\n', "'a\\x1b': there is no such setting (in windlass.toml); "),
        ("[server]\nport_file = 'x'\n", "server.port_file: there is no such setting (in windlass.toml); "),
        ("a = [\n\n1,,]\n", "Cannot read windlass.toml: it is not TOML: Invalid value (at line 3, column 3). "),
        ("a = " + "[" * 5000, "Cannot read windlass.toml: it is not TOML: it is nested too deeply. "),
        ("a = " + "9" * 5000, "Cannot read windlass.toml: it is not TOML: Exceeds the limit"),
    ],
)
def test_an_unknown_key_or_bad_toml_is_named(toml: str, message: str, tmp_path: Path) -> None:
    """A misspelt name is an error that names the nearest known one; bad TOML is told with its line."""
    (tmp_path / "windlass.toml").write_text(toml)

    assert refusal(tmp_path, {}).startswith(message)


def test_an_unknown_variable_is_named(tmp_path: Path) -> None:
    """A misspelt variable of ours is an error that names the nearest known one."""
    expected = "WINDLASS_SERVER_PROT: there is no such setting; did you mean WINDLASS_SERVER_PORT?"

    assert expected == refusal(tmp_path, {"WINDLASS_SERVER_PROT": "1"})
    assert "config show" in refusal(tmp_path, {"WINDLASS_ZZZZZZZZZZ": "1"})


def test_an_unknown_flag_is_named(tmp_path: Path) -> None:
    """A command that gives a setting which is not there has a slip in its name."""
    assert "did you mean server.port?" in refusal(tmp_path, {}, {"server.prot": 1})


@pytest.mark.parametrize(
    ("environment", "parts"),
    [
        (
            {"WINDLASS_WORKER_LEASE_SECONDS": "30", "WINDLASS_WORKER_HEARTBEAT_SECONDS": "30"},
            ["worker.lease_seconds: 30 (from WINDLASS_WORKER_LEASE_SECONDS)", "worker.heartbeat_seconds, which is 30"],
        ),
        ({"WINDLASS_DUTIES_LEASE_SECONDS": "3.9"}, ["duties.lease_seconds: 3.9", "less than two", "from default"]),
        ({"WINDLASS_WORKER_BACKOFF_MIN_SECONDS": "31"}, ["worker.backoff_max_seconds: 30", "at least"]),
        ({"WINDLASS_WORKERS_DEFAULT_COUNT": "9"}, ["workers.max_count: 8"]),
        ({"WINDLASS_QUEUE_DEPTH_WARNING": "10001"}, ["queue.depth_critical: 10000"]),
        ({"WINDLASS_SCALING_MIN": "5", "WINDLASS_SCALING_MAX": "4"}, ["scaling.max: 4"]),
        ({"WINDLASS_SCALING_DOWN_BELOW": "1001"}, ["scaling.up_above: 1000"]),
        ({"WINDLASS_SECURITY_TLS_CERT": "c"}, ["security.tls_cert: set", "without security.tls_key"]),
        ({"WINDLASS_SECURITY_TLS_KEY": "k"}, ["security.tls_key: set", "without security.tls_cert"]),
    ],
)
def test_what_does_not_go_together_is_named(environment: dict[str, str], parts: list[str], tmp_path: Path) -> None:
    """A lease shorter than its heartbeat, a least above a most: both keys, values and sources are told."""
    message = refusal(tmp_path, environment)

    assert [] == [part for part in parts if part not in message]


@pytest.mark.parametrize(
    ("environment", "message"),
    [
        ({"WINDLASS_KEY": "a", "WINDLASS_CLIENT_KEY": "b"}, "client.key: set twice and differently"),
        ({"WINDLASS_KEY": "a", "WINDLASS_KEY_FILE": "secret"}, "client.key: set twice and differently"),
        ({"WINDLASS_KEY_FILE": "gone"}, "Cannot read WINDLASS_KEY_FILE: gone: No such file"),
        ({"WINDLASS_KEY_FILE": "."}, "Cannot read WINDLASS_KEY_FILE: .: Is a directory"),
        ({"WINDLASS_KEY_FILE": "empty"}, "Cannot read WINDLASS_KEY_FILE: empty: it is empty"),
        ({"WINDLASS_KEY_FILE": "binary"}, "Cannot read WINDLASS_KEY_FILE: binary: it is not UTF-8 at byte 1"),
        ({"WINDLASS_KEY_FILE": "large"}, "Cannot read WINDLASS_KEY_FILE: large: it has more than 1 MiB"),
        ({"WINDLASS_KEY_FILE": "lines"}, "client.key: *** has a control character"),
        ({"WINDLASS_CONFIG": "."}, "Cannot read .: Is a directory"),
        ({"WINDLASS_CONFIG": "binary"}, "Cannot read binary: it is not UTF-8 at byte 1"),
        ({"WINDLASS_CONFIG": "\udcff"}, "Cannot read '\\udcff': No such file"),
        ({"WINDLASS_WORKER_ID": "\udcff"}, "worker.id: '\\udcff' has a control character, or is not UTF-8"),
    ],
)
def test_files_that_cannot_be_read_are_named(environment: dict[str, str], message: str, tmp_path: Path) -> None:
    """Missing, empty, too large, a directory, not UTF-8: one sentence, with the variable and the path."""
    (tmp_path / "secret").write_text("c")
    (tmp_path / "empty").write_text("\n")
    (tmp_path / "lines").write_text("a\nb\n")
    (tmp_path / "binary").write_bytes(b"a\xff")
    (tmp_path / "large").write_bytes(b"a" * 1_048_577)

    assert refusal(tmp_path, environment).startswith(message)


@pytest.mark.parametrize(
    ("variable", "text"),
    [
        ("WINDLASS_DATABASE_URL", f"mysql://u:{CANARY}@h/d"),
        ("WINDLASS_DATABASE_URL", f"mysql://h/d?password={CANARY}"),
        ("WINDLASS_DATABASE_URL", f"postgresql:/u:{CANARY}@h/d"),
        ("WINDLASS_DATABASE_URL", f"host=h password={CANARY}"),
        ("WINDLASS_DATABASE_REPLICA_URL", f"u:{CANARY}@h"),
        ("WINDLASS_URL", f"ftp://u:{CANARY}@x"),
        ("WINDLASS_URL", f"http//u:{CANARY}@x"),
        ("WINDLASS_URL", f"u:{CANARY}@x"),
        ("WINDLASS_URL", f"{CANARY}@x"),
        ("WINDLASS_URL", f"ftp://u:{CANARY}{'.' * 100}@x"),
        ("WINDLASS_URL", f"ftp://u:{CANARY}/?#@{CANARY}@x"),
        ("WINDLASS_URL", f"ftp://x/?password={CANARY}"),
        ("WINDLASS_URL", f"wl_abc_{CANARY}"),
        ("WINDLASS_URL", f"http://u:{CANARY}/@x"),
        ("WINDLASS_URL", f"http://u:{CANARY}℀@x"),
        ("WINDLASS_URL", f"http://u:{CANARY}@[x"),
        ("WINDLASS_DATABASE_URL", f"postgresql://u:{CANARY}℀@x"),
        ("SERVER_URL", f"ftp://u:{CANARY}@x"),
        ("WINDLASS_WORKER_SPOT_URL", f"ftp://u:{CANARY}@x"),
        ("WINDLASS_SERVER_HOST", f"http://u:{CANARY}@x"),
        ("WINDLASS_METRICS_STATSD_ADDRESS", f"udp://u:{CANARY}@x:8125"),
        ("WINDLASS_METRICS_STATSD_ADDRESS", f"{CANARY}@x:8125"),
        ("WINDLASS_WORKER_QUEUES", f"a,http://u:{CANARY}@x/b"),
        ("WINDLASS_MODE", f"http://u:{CANARY}@x"),
        ("JOB_MAX_RETRIES", f"http://u:{CANARY}@x"),
        ("WINDLASS_DATABASE_URL_FILE", f"postgresql://u:{CANARY}@h/d"),
        ("WINDLASS_DATABASE_URL_FILE", f"u:{CANARY}@h/d"),
        ("WINDLASS_KEY_FILE", f"wl_abc_{CANARY}"),
        ("WINDLASS_CONFIG", f"http://u:{CANARY}@h/d"),
        ("WINDLASS_KEY", f"{CANARY} {CANARY}"),
        ("WINDLASS_SECURITY_BOOTSTRAP_KEY", f"{CANARY}\n{CANARY}"),
    ],
)
def test_rel_t17_a_refused_secret_is_not_shown(variable: str, text: str, tmp_path: Path) -> None:
    """The message about a secret that cannot be accepted does not give it away."""
    assert CANARY not in refusal(tmp_path, {variable: text})


def test_what_is_no_secret_of_a_refused_url_is_shown(tmp_path: Path) -> None:
    """Scheme and host stay: mostly one of them is wrong."""
    assert "server.url: 'ftp://***@x' is not" in refusal(tmp_path, {"WINDLASS_URL": f"ftp://u:{CANARY}@x"})
    assert "server.url: '***@x' is not" in refusal(tmp_path, {"WINDLASS_URL": f"u:{CANARY}@x"})


def test_rel_t17_a_secret_in_a_table_of_the_file_is_not_shown(tmp_path: Path) -> None:
    """What stands where no table is expected is shown without the passwords of its URLs."""
    (tmp_path / "windlass.toml").write_text(f'[server.url]\nmain = "http://u:{CANARY}@x"\n')

    assert CANARY not in refusal(tmp_path, {})


def test_a_path_with_an_at_sign_is_named(tmp_path: Path) -> None:
    """systemd's credentials of an instance lie in such a folder; nothing in it looks like a password."""
    assert "credentials/windlass@1.service/key: No such file" in refusal(
        tmp_path, {"WINDLASS_KEY_FILE": "credentials/windlass@1.service/key"}
    )


def test_exit_codes_follow_the_kind(tmp_path: Path) -> None:
    """A wrong value is wrong usage, a file that cannot be read is a failure of the installation."""
    with pytest.raises(InvalidInput) as value:
        load({}, {"WINDLASS_SERVER_PORT": "x"}, tmp_path)
    with pytest.raises(SetupError) as file:
        load({}, {"WINDLASS_CONFIG": "gone"}, tmp_path)

    assert (2, 1) == (value.value.exit_code, file.value.exit_code)


VARIABLES = st.sampled_from([key.variable for key in KEYS.values()] + ["MODE", "POLL_INTERVAL", "JOB_MAX_RETRIES"])
TEXTS = st.text(max_size=12) | st.from_regex(r"[-+]?[0-9.]{1,20}(ms|[smhd])?", fullmatch=True)


@given(st.dictionaries(VARIABLES, TEXTS, max_size=3))
def test_every_environment_loads_or_is_refused(environment: dict[str, str]) -> None:
    """Whatever the values, the answer is settings or an error of ours in one printable line."""
    problem = ""

    try:
        load({}, environment, Path("/nowhere"))
    except WindlassError as error:
        problem = str(error)

    assert problem.isprintable()


@pytest.mark.parametrize("key", WITHOUT_EFFECT)
@pytest.mark.parametrize("where", ["file", "variable"])
def test_a_setting_that_would_do_nothing_is_refused(tmp_path: Path, key: str, where: str) -> None:
    """V1: who expects something of it is told that nothing comes of it, and what to use."""
    section, _, name = key.partition(".")
    if where == "file":
        (tmp_path / "windlass.toml").write_text(f'[{section}]\n{name} = "postgresql://h/d"\n')
    variable = f"WINDLASS_{section}_{name}".upper()

    message = refusal(tmp_path, {variable: "postgresql://h/d"} if where == "variable" else {})

    assert message.startswith(key if where == "file" else variable)
    assert WITHOUT_EFFECT[key] in message
