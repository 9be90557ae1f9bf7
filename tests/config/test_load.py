"""Where settings come from: the order of the sources, files, variables, other names, secrets in files."""

from __future__ import annotations

from pathlib import Path

import pytest

from windlass.config import Loaded, Settings, load
from windlass.config.check import value_of
from windlass.config.keys import KEYS, OLD_VARIABLES, SAME
from windlass.config.load import flat
from windlass.errors import InvalidInput, SetupError


def loaded(
    tmp_path: Path, toml: str | None = None, flags: dict[str, object] | None = None, /, **environment: str
) -> Loaded:
    """Load with this `windlass.toml`, these flags and this environment."""
    if toml is not None:
        (tmp_path / "windlass.toml").write_text(toml, encoding="utf-8")
    return load(flags or {}, environment, tmp_path)


def test_without_anything_the_defaults_hold(tmp_path: Path) -> None:
    """The shipped file and the struct say the same, and nothing is weak."""
    found = loaded(tmp_path)

    assert Settings() == found.settings
    assert set(flat(found.settings)) == set(found.sources)
    assert () == found.warnings


def test_flags_come_before_environment_before_old_names_before_the_file(tmp_path: Path) -> None:
    """Each source gives way to the one above it, and the source that won is told."""
    toml = "[server]\nurl = 'http://file'\n"
    old, new = {"SERVER_URL": "http://old"}, {"WINDLASS_SERVER_URL": "http://new"}
    flags: dict[str, object] = {"server.url": "http://flag"}

    sources = [
        loaded(tmp_path),
        loaded(tmp_path, toml),
        loaded(tmp_path, toml, **old),
        loaded(tmp_path, toml, **old, **new),
        loaded(tmp_path, toml, flags, **old, **new),
    ]

    assert [
        ("http://localhost:8000", "default"),
        ("http://file", "windlass.toml"),
        ("http://old", "SERVER_URL"),
        ("http://new", "WINDLASS_SERVER_URL"),
        ("http://flag", "command line"),
    ] == [(found.settings.server.url, found.sources["server.url"]) for found in sources]


def test_a_flag_that_is_not_given_decides_nothing(tmp_path: Path) -> None:
    """None is an absent flag, false is a given one."""
    environment = {"WINDLASS_SERVER_INSECURE": "true", "WINDLASS_SERVER_PORT": "9"}

    found = loaded(tmp_path, None, {"server.port": None, "server.insecure": False}, **environment)

    assert 9 == found.settings.server.port
    assert found.settings.server.insecure is False


@pytest.mark.parametrize("key", KEYS.values(), ids=list(KEYS))
def test_every_key_has_a_variable(key: object, tmp_path: Path) -> None:
    """Each setting can be given by its variable, and by nothing else of that name."""
    name = getattr(key, "name", "")
    values = {"claim_batch": "7", "url": "sqlite:///x.db", "statsd_address": "h:1"}
    values["health_address"] = "h:1"
    default = getattr(key, "default", None)
    text = {
        "mode": "worker",
        "worker.profile": "sequential",
        "server.url": "http://h",
        "worker.spot_url": "http://h",
        "worker.queues": "a, b",
        "worker.labels": "a,b",
        "security.redact": "a,b",
        "security.keys_required": "yes",
        "security.tls_cert": "x",
        "security.tls_key": "x",
        "worker.lease_seconds": "9",
        "worker.heartbeat_seconds": "9",
        "duties.heartbeat_seconds": "1",
        "duties.lease_seconds": "9",
    }.get(name) or values.get(name.rpartition(".")[2])
    if text is None:
        text = _other(name, default)
    variable = "WINDLASS_" + name.upper().replace(".", "_")
    both_files = {"WINDLASS_SECURITY_TLS_CERT": "c", "WINDLASS_SECURITY_TLS_KEY": "k"} if "tls" in name else {}

    found = loaded(tmp_path, **{**both_files, variable: text})

    assert variable == found.sources[name]
    assert default != value_of(found.settings, name)


def _other(name: str, default: object) -> str:
    """Return a text for another value than the default."""
    choices = {"vocabulary": "c", "isolation": "process", "spot_notice": "off", "kind": "fixed", "catch_up": "all"}
    choices |= {"overlap": "allow", "policy": "threshold", "format": "json", "level": "debug"}
    choices |= {"host": "::1", "prefix": "jobs_", "down_below": "99", "jitter": "0.2", "log_jobs": "failures"}
    if name == "duties.mode":
        return "steal"
    field = name.rpartition(".")[2]
    if field in choices:
        return choices[field]
    if isinstance(default, bool):
        return str(not default)
    if isinstance(default, int | float):
        return str(default - 1) if field.endswith(("_bytes", "wait_seconds", "shards")) else f"{default + 1:g}"
    return "something"


def test_an_empty_variable_is_not_set(tmp_path: Path) -> None:
    """Compose files give an empty text for what is absent."""
    found = loaded(tmp_path, WINDLASS_SERVER_PORT="", WINDLASS_KEY="  ", WORKER_ID="", WINDLASS_DATABASE_URL_FILE="")

    assert Settings() == found.settings


@pytest.mark.parametrize(
    ("variable", "text", "key", "value"),
    [
        ("WORKER_ID", "w7", "worker.id", "w7"),
        ("SERVER_URL", "http://s:1", "server.url", "http://s:1"),
        ("WORKER_THREADS", "5", "worker.threads", 5),
        ("POLL_INTERVAL", "2.5", "worker.poll_interval_seconds", 2.5),
        ("WORKER_POLL_INTERVAL", "3", "worker.poll_interval_seconds", 3.0),
        ("MODE", "worker", "mode", "worker"),
        ("VERSION", "v2", "worker.version", "v2"),
        ("JOB_MAX_RETRIES", "3", "jobs.max_attempts", 4),
        ("JOB_HEARTBEAT_TIMEOUT", "90", "jobs.lease_seconds", 90.0),
        ("QUEUE_DEPTH_WARNING_THRESHOLD", "70", "queue.depth_warning", 70),
        ("WINDLASS_KEY", "wl_a_b", "client.key", "wl_a_b"),
        ("WINDLASS_URL", "http://u", "server.url", "http://u"),
        ("WINDLASS_JOBS_MAX_RETRIES", "0", "jobs.max_attempts", 1),
        ("WINDLASS_WORKER_DEAD_AFTER_SECONDS", "60", "worker.lease_seconds", 60.0),
        ("WINDLASS_WORKERS_LEASE_TIMEOUT_SECONDS", "61", "worker.lease_seconds", 61.0),
        ("WINDLASS_RETRY_BASE", "7", "retry.base_seconds", 7.0),
    ],
)
def test_other_names_lead_to_a_key(variable: str, text: str, key: str, value: object, tmp_path: Path) -> None:
    """Names of older systems and aliases are read; a number of retries is one less than that of attempts."""
    found = loaded(tmp_path, **{variable: text})

    assert (value, variable) == (value_of(found.settings, key), found.sources[key])


def test_every_old_name_is_tested_above() -> None:
    """The names of older systems are these ten, and the aliases these four."""
    assert 10 == len(OLD_VARIABLES)
    assert 4 == len(SAME)


def test_of_two_old_names_the_more_particular_wins(tmp_path: Path) -> None:
    """WORKER_POLL_INTERVAL is ours more surely than POLL_INTERVAL."""
    found = loaded(tmp_path, POLL_INTERVAL="5", WORKER_POLL_INTERVAL="6")

    assert 6.0 == found.settings.worker.poll_interval_seconds


def test_an_old_name_that_is_overruled_may_be_anything(tmp_path: Path) -> None:
    """MODE may belong to another program: with WINDLASS_MODE set it is not looked at, else it must be ours."""
    assert "server" == loaded(tmp_path, MODE="production", WINDLASS_MODE="server").settings.mode
    with pytest.raises(InvalidInput, match=r"^mode: 'production' is not accepted \(from MODE\)"):
        loaded(tmp_path, MODE="production")


@pytest.mark.parametrize(
    "toml",
    [
        "[jobs]\nmax_retries = 4\n[worker]\ndead_after_seconds = 60\n",
        "[jobs]\nmax_attempts = 5\n[workers]\nlease_timeout_seconds = '1m'\n",
        "jobs.max_attempts = 5\nworker = {lease_seconds = 60.0}\n",
    ],
)
def test_the_file_takes_aliases_durations_and_any_form_of_toml(toml: str, tmp_path: Path) -> None:
    """Sections, dotted keys and inline tables are the same to TOML, and so they are here."""
    settings = loaded(tmp_path, toml).settings

    assert (5, 60.0) == (settings.jobs.max_attempts, settings.worker.lease_seconds)


@pytest.mark.parametrize("by", ["flag", "variable"])
def test_the_file_may_be_named(by: str, tmp_path: Path) -> None:
    """`--config`, else WINDLASS_CONFIG, names the file; the one in the folder is then not read."""
    (tmp_path / "other.toml").write_text("mode = 'server'\n")
    (tmp_path / "windlass.toml").write_text("not = [TOML")

    if by == "flag":
        found = load({"config": "other.toml"}, {"WINDLASS_CONFIG": "none.toml"}, tmp_path)
    else:
        found = load({"config": None}, {"WINDLASS_CONFIG": str(tmp_path / "other.toml")}, tmp_path)

    assert ("server", "other.toml") == (found.settings.mode, found.sources["mode"])


@pytest.mark.parametrize(
    ("environment", "key"),
    [
        ({"WINDLASS_DATABASE_URL_FILE": "secret"}, "database.url"),
        ({"WINDLASS_SECURITY_BOOTSTRAP_KEY_FILE": "secret"}, "security.bootstrap_key"),
        ({"WINDLASS_CLIENT_KEY_FILE": "secret"}, "client.key"),
        ({"WINDLASS_KEY_FILE": "secret"}, "client.key"),
    ],
)
def test_a_secret_may_stand_in_a_file(environment: dict[str, str], key: str, tmp_path: Path) -> None:
    """The file's text without its last newline is the value; the source names variable and file."""
    (tmp_path / "secret").write_text("sqlite:///s.db\r\n")

    found = load({}, environment, tmp_path)

    assert "sqlite:///s.db" == value_of(found.settings, key)
    assert f"{next(iter(environment))}: secret" == found.sources[key]


def test_a_file_may_name_the_file_of_a_secret(tmp_path: Path) -> None:
    """In windlass.toml the key is `…_file`, relative to the folder of the file that names it."""
    (tmp_path / "etc").mkdir()
    (tmp_path / "etc" / "key").write_text("wl_a_b")
    (tmp_path / "etc" / "w.toml").write_text("[client]\nkey_file = 'key'\n")

    found = load({"config": "etc/w.toml"}, {}, tmp_path)

    assert "wl_a_b" == found.settings.client.key
    assert "etc/w.toml: key" == found.sources["client.key"]


def test_what_kubernetes_sets_by_itself_is_passed_over(tmp_path: Path) -> None:
    """A Service called windlass or windlass-server fills the environment with names that look like ours."""
    found = loaded(
        tmp_path,
        WINDLASS_SERVICE_HOST="10.0.0.1",
        WINDLASS_SERVICE_PORT="8000",
        WINDLASS_SERVICE_PORT_HTTP="8000",
        WINDLASS_PORT="tcp://10.0.0.1:8000",
        WINDLASS_PORT_8000_TCP_ADDR="10.0.0.1",
        WINDLASS_SERVER_PORT="tcp://10.0.0.1:8000",
        WINDLASS_SERVER_PORT_8000_TCP="tcp://10.0.0.1:8000",
    )

    assert Settings() == found.settings


def test_variables_of_tests_are_not_settings(tmp_path: Path) -> None:
    """What the test suite itself reads may be set."""
    found = loaded(tmp_path, WINDLASS_TEST_POSTGRES_URL="x", WINDLASS_HYPOTHESIS_PROFILE="dev", OTHER="x")

    assert Settings() == found.settings


def test_the_heartbeat_follows_the_lease(tmp_path: Path) -> None:
    """Not set, a worker's heartbeat is a third of its lease; set, it is what was set."""
    found = loaded(tmp_path, WINDLASS_WORKER_LEASE_SECONDS="300")
    both = loaded(tmp_path, WINDLASS_WORKER_LEASE_SECONDS="300", WINDLASS_WORKER_HEARTBEAT_SECONDS="60")

    assert (100.0, "a third of worker.lease_seconds") == (
        found.settings.worker.heartbeat_seconds,
        found.sources["worker.heartbeat_seconds"],
    )
    assert 60.0 == both.settings.worker.heartbeat_seconds


def test_the_lease_of_a_worker_is_the_servers(tmp_path: Path) -> None:
    """Not set, the server's jobs.lease_seconds counts, which a worker does not know; nor can its heartbeat be wrong."""
    found = loaded(tmp_path).settings.worker
    beat = loaded(tmp_path, WINDLASS_WORKER_HEARTBEAT_SECONDS="60").settings.worker

    assert (None, None) == (found.lease_seconds, found.heartbeat_seconds)
    assert (None, 60.0) == (beat.lease_seconds, beat.heartbeat_seconds)


def test_the_sequential_profile_is_a_worker_of_one_job_at_a_time(tmp_path: Path) -> None:
    """W1, W4, V10: one thread, polled every 5 s, lease 300 s, beat 60 s; what is set beside it stands."""
    found = loaded(tmp_path, WINDLASS_WORKER_PROFILE="sequential")
    other = loaded(
        tmp_path, WINDLASS_WORKER_PROFILE="sequential", WINDLASS_WORKER_THREADS="2", WINDLASS_WORKER_LEASE_SECONDS="30"
    )

    worker = found.settings.worker
    assert (1, 1, 0.0, 5.0) == (worker.threads, worker.claim_batch, worker.wait_seconds, worker.poll_interval_seconds)
    assert (300.0, 60.0) == (worker.lease_seconds, worker.heartbeat_seconds)
    assert "worker.profile sequential" == found.sources["worker.threads"]
    worker = other.settings.worker
    assert (2, 30.0, 10.0) == (worker.threads, worker.lease_seconds, worker.heartbeat_seconds)


@pytest.mark.parametrize(
    ("environment", "bounds"),
    [
        ({}, (2, 8)),
        ({"WINDLASS_WORKERS_DEFAULT_COUNT": "3", "WINDLASS_WORKERS_MAX_COUNT": "5"}, (3, 5)),
        ({"WINDLASS_SCALING_POLICY": "per_worker"}, (3, 20)),
        ({"WINDLASS_SCALING_POLICY": "threshold"}, (10, 1000)),
        ({"WINDLASS_SCALING_POLICY": "threshold", "WINDLASS_SCALING_MIN": "0"}, (0, 1000)),
        ({"WINDLASS_SCALING_MAX": "1"}, (1, 1)),
        ({"WINDLASS_SCALING_MIN": "30"}, (30, 30)),
    ],
)
def test_the_bounds_of_scaling_follow_the_policy(
    environment: dict[str, str], bounds: tuple[int, int], tmp_path: Path
) -> None:
    """Not set, they are those of the local pool for depth, and of the preset for the others."""
    scaling = load({}, environment, tmp_path).settings.scaling

    assert bounds == (scaling.min, scaling.max)


@pytest.mark.parametrize(
    ("environment", "warning"),
    [
        ({"WINDLASS_SERVER_HOST": "0.0.0.0", "WINDLASS_SERVER_INSECURE": "1"}, "everyone who reaches 0.0.0.0"),
        ({"WINDLASS_SERVER_HOST": "::", "WINDLASS_SECURITY_KEYS_REQUIRED": "false"}, "calls to :: need no key"),
        ({"WINDLASS_API_ALLOW_UNFENCED": "true"}, "may still report"),
        ({"WINDLASS_DATABASE_URL": "sqlite:///x.db?synchronous=off"}, "may be lost"),
    ],
)
def test_rel_t21_weak_modes_are_warned_of(environment: dict[str, str], warning: str, tmp_path: Path) -> None:
    """What is allowed but weak is told at every start."""
    (told,) = load({}, environment, tmp_path).warnings

    assert warning in told


@pytest.mark.parametrize(
    ("toml", "mode", "warned"),
    [
        ("[client]\nkey = 'wl_a_b'\n", 0o644, True),
        ("[client]\nkey = 'wl_a_b'\n", 0o640, False),
        ("[database]\nurl = 'postgresql://u:p@h/d'\n", 0o604, True),
        ("[database]\nurl = 'postgresql://u@h/d'\n", 0o644, False),
        ("[client]\nkey_file = 'key'\n", 0o644, False),
    ],
)
def test_rel_t21_a_secret_that_everyone_may_read_is_warned_of(
    toml: str, mode: int, warned: bool, tmp_path: Path
) -> None:
    """A windlass.toml with a secret in it is for its owner only."""
    (tmp_path / "windlass.toml").write_text(toml)
    (tmp_path / "windlass.toml").chmod(mode)
    (tmp_path / "key").write_text("wl_a_b")

    assert warned is any("everyone on this machine may read it" in told for told in loaded(tmp_path).warnings)


def test_a_named_file_must_be_there(tmp_path: Path) -> None:
    """A file that somebody named and that is missing is an error; the one in the folder may be missing."""
    with pytest.raises(SetupError, match=r"Cannot read gone.toml: No such file"):
        load({"config": "gone.toml"}, {}, tmp_path)
