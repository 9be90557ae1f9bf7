"""Which settings do not go together, what follows from others, and what is allowed but weak. Pure."""

from __future__ import annotations

from collections.abc import Mapping
from urllib.parse import urlsplit

import msgspec

from windlass.config.keys import shown
from windlass.config.settings import Scaling, Settings
from windlass.errors import InvalidInput

DERIVED = "scaling.min", "scaling.max"
"""Not set, these follow from other settings."""

_SEQUENTIAL = {
    "threads": 1,
    "claim_batch": 1,
    "wait_seconds": 0.0,
    "poll_interval_seconds": 5.0,
    "lease_seconds": 300.0,
    "heartbeat_seconds": 60.0,
}
_SCALING_BOUNDS = {"per_worker": (3, 20), "threshold": (10, 1000)}
_LOOPBACK = {"127.0.0.1", "::1", "localhost"}


def derive(settings: Settings, given: set[str]) -> tuple[Settings, dict[str, str]]:
    """Return the settings with what nobody gave and what follows from others; and what it follows from, by key."""
    sources = {}
    worker = settings.worker
    if worker.profile == "sequential":
        following = {name: value for name, value in _SEQUENTIAL.items() if f"worker.{name}" not in given}
        if "worker.lease_seconds" in given:
            following.pop("heartbeat_seconds", None)
        worker = msgspec.structs.replace(worker, **following)
        sources = {f"worker.{name}": "worker.profile sequential" for name in following}
    if "worker.heartbeat_seconds" not in given and "worker.lease_seconds" in given and worker.lease_seconds:
        worker = msgspec.structs.replace(worker, heartbeat_seconds=worker.lease_seconds / 3)
        sources["worker.heartbeat_seconds"] = "a third of worker.lease_seconds"
    scaling, from_workers = _scaling_bounds(settings, given)
    return msgspec.structs.replace(settings, worker=worker, scaling=scaling), {**sources, **from_workers}


def _scaling_bounds(settings: Settings, given: set[str]) -> tuple[Scaling, dict[str, str]]:
    scaling, pool = settings.scaling, settings.workers
    if scaling.policy in _SCALING_BOUNDS:
        least, most = _SCALING_BOUNDS[scaling.policy]
        low_source = high_source = f"scaling.policy {scaling.policy}"
    else:
        least, most = pool.default_count, pool.max_count
        low_source, high_source = "workers.default_count", "workers.max_count"
    sources = {}
    if "scaling.min" not in given:
        # A larger number of workers wished for does not clash with a bound that nobody gave.
        scaling = msgspec.structs.replace(scaling, min=min(least, scaling.max) if "scaling.max" in given else least)
        sources["scaling.min"] = low_source
    if "scaling.max" not in given:
        scaling = msgspec.structs.replace(scaling, max=max(most, scaling.min))
        sources["scaling.max"] = high_source
    return scaling, sources


def check(settings: Settings, sources: Mapping[str, str]) -> None:
    """Return if the settings go together; InvalidInput names the two keys that do not, and where they come from."""
    for key in ("server.url", "worker.spot_url", "database.url"):
        _readable(key, value_of(settings, key), sources)
    _ordered(settings, sources, low="worker.heartbeat_seconds", high="worker.lease_seconds", strictly=True)
    _ordered(settings, sources, low="worker.backoff_min_seconds", high="worker.backoff_max_seconds")
    _ordered(settings, sources, low="workers.default_count", high="workers.max_count")
    _ordered(settings, sources, low="queue.depth_warning", high="queue.depth_critical")
    _ordered(settings, sources, low="scaling.min", high="scaling.max")
    _ordered(settings, sources, low="scaling.down_below", high="scaling.up_above")
    duties = settings.duties
    if duties.lease_seconds < 2 * duties.heartbeat_seconds:
        raise InvalidInput(
            "duties.lease_seconds",
            f"{duties.lease_seconds:g} (from {sources['duties.lease_seconds']}) is less than two of "
            f"duties.heartbeat_seconds, {duties.heartbeat_seconds:g} (from {sources['duties.heartbeat_seconds']}): "
            "duties would change hands all the time. Raise the first or lower the second.",
        )
    security = settings.security
    for name, other in (("tls_cert", "tls_key"), ("tls_key", "tls_cert")):
        if getattr(security, name) is not None and getattr(security, other) is None:
            source = sources[f"security.{name}"]
            raise InvalidInput(f"security.{name}", f"set (from {source}) without security.{other}; set that too.")


def warnings(settings: Settings) -> list[str]:
    """Return a sentence for each setting that is allowed but weak; an empty list when there is none."""
    found = []
    if settings.server.insecure and settings.server.host not in _LOOPBACK:
        found.append(f"server.insecure: everyone who reaches {settings.server.host} may do everything, without a key.")
    if settings.security.keys_required is False and settings.server.host not in _LOOPBACK:
        found.append(f"security.keys_required is false: calls to {settings.server.host} need no key.")
    if settings.api.allow_unfenced:
        found.append("api.allow_unfenced: a worker that lost its job may still report it.")
    if "synchronous=off" in settings.database.url:
        found.append("database.url has synchronous=off: jobs that were accepted may be lost when the machine stops.")
    return found


def value_of(settings: Settings, key: str) -> object:
    """Return what `section.name` is set to."""
    found: object = settings
    for part in key.split("."):
        found = getattr(found, part)
    return found


def _readable(key: str, url: object, sources: Mapping[str, str]) -> None:
    try:
        parts = urlsplit(str(url))
        _ = parts.port if parts.scheme in ("http", "https") else None  # hosts of PostgreSQL may be several
    except ValueError:  # its text may be a password
        raise InvalidInput(
            key,
            f"{shown(key, url)} is no URL that can be read (from {sources[key]}). Check host and port; in a password "
            "write other characters than letters and digits as % and their code, / as %2F.",
        ) from None


def _ordered(settings: Settings, sources: Mapping[str, str], *, low: str, high: str, strictly: bool = False) -> None:
    least, most = value_of(settings, low), value_of(settings, high)
    if least is None or most is None:
        return
    assert isinstance(least, int | float)
    assert isinstance(most, int | float)
    if least > most or (strictly and least == most):
        raise InvalidInput(
            high,
            f"{most:g} (from {sources[high]}) must be {'above' if strictly else 'at least'} {low}, "
            f"which is {least:g} (from {sources[low]}). Raise the first or lower the second.",
        )
