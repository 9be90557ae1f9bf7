"""Retry: when again, or never. Pure: values in, a decision out.

The default waits 2, 4, 8 … seconds, an hour at most, plus up to a tenth of it by chance.
A lost lease is decided here too: it always counts as lost, and as an attempt only if its start had been told.
"""

from __future__ import annotations

from typing import Any, Literal

import msgspec

PREFERENCE_S = 10.0
"""How long the worker that failed a job may claim it back before others can."""


class RetryPolicy(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True, forbid_unknown_fields=True):
    """How long to wait before each further attempt, and what comes after the last."""

    kind: Literal["exponential", "linear", "fixed", "table"] = "exponential"
    base_s: float = 1.0
    """After attempt n an exponential wait is base × factor^n, a linear one base × n, a fixed one base."""
    factor: float = 2.0
    cap_s: float = 3600.0
    jitter: float = 0.1
    """Added by chance, as a share of the wait."""
    delays_s: tuple[float, ...] = ()
    """Of kind `table`: the waits in order; the last one repeats."""
    prefer_same_worker: bool = False
    """A retry without wait is kept for the worker that failed it for a few seconds."""
    max_attempts: int | None = None
    """Instead of the job's own."""
    then: Literal["dead", "hold"] = "dead"
    """Hold: the job rests among the dead letters, marked as held, until a person decides."""
    by_error: dict[str, RetryPolicy] = msgspec.field(default_factory=dict)
    """Another policy for errors of a type."""


DEFAULT = RetryPolicy()
PRESETS = {
    "default": DEFAULT,
    "immediate": RetryPolicy(kind="fixed", base_s=0.0, jitter=0.0),
    "stepped": RetryPolicy(
        kind="table", delays_s=(0.0, 30.0, 60.0), jitter=0.0, prefer_same_worker=True, max_attempts=4, then="hold"
    ),
}


class Again(msgspec.Struct, frozen=True):
    """Another attempt, after a wait."""

    delay_s: float
    prefer_same_worker: bool = False


class Never(msgspec.Struct, frozen=True):
    """No further attempt: the job is dead, for this reason."""

    reason: str
    held: bool = False


class Loss(msgspec.Struct, frozen=True):
    """What a lost lease leaves: the attempts still counted, and what comes next; no wait means at once."""

    attempt: int
    then: Again | Never


def after_failure(
    policy: RetryPolicy, *, attempt: int, max_attempts: int, retryable: bool, error_type: str | None, chance: float
) -> Again | Never:
    """Decide what follows attempt number `attempt` (from 1), which failed. `chance` is between 0 and 1."""
    policy = policy.by_error.get(error_type or "", policy)
    limit = policy.max_attempts or max_attempts
    held = policy.then == "hold"
    if not retryable:
        return Never("The error is not retryable.", held)
    if attempt >= limit:
        ended = "timed out" if error_type == "timeout" else "failed"
        return Never(f"Attempt {attempt} of {limit} {ended}.", held)
    delay_s = wait_s(policy, attempt=attempt, chance=chance)
    return Again(delay_s, prefer_same_worker=policy.prefer_same_worker and delay_s == 0)


def after_loss(
    policy: RetryPolicy, *, attempt: int, max_attempts: int, lost: int, max_lost: int, started: bool, chance: float
) -> Loss:
    """Decide what follows a lease lost in attempt number `attempt`; `lost` counts this loss too."""
    kept = attempt if started else attempt - 1
    limit = policy.max_attempts or max_attempts
    if lost >= max_lost:
        return Loss(kept, Never(f"Its lease was lost {lost} times.", policy.then == "hold"))
    if kept >= limit:
        return Loss(kept, Never(f"Worker crashed or timed out in attempt {kept} of {limit}.", policy.then == "hold"))
    # The first loss may well be the worker's own; from the second on the job itself is suspect.
    delay_s = 0.0 if lost == 1 else wait_s(policy, attempt=lost, chance=chance)
    return Loss(kept, Again(delay_s))


def wait_s(policy: RetryPolicy, *, attempt: int, chance: float) -> float:
    """Return the seconds to wait after attempt number `attempt`, jitter included."""
    if policy.kind == "table":
        wait = policy.delays_s[min(attempt, len(policy.delays_s)) - 1] if policy.delays_s else 0.0
    elif policy.kind == "fixed":
        wait = policy.base_s
    elif policy.kind == "linear":
        wait = policy.base_s * attempt
    else:
        # The exponent is bounded so that a thousand attempts do not overflow a float.
        wait = policy.base_s * policy.factor ** min(attempt, 64)
    wait = min(wait, policy.cap_s)
    return wait + wait * policy.jitter * chance


def policy_from_json(text: str | None) -> RetryPolicy:
    """Return the policy stored with a job; none stored is the default.

    It was checked when it was stored, perhaps by a server of another version.
    So a field that is not known here is passed over, and what still makes no policy is the default:
    a job must never be left behind for the way its policy is written.
    """
    if text is None:
        return DEFAULT
    try:
        return msgspec.convert(_known_fields(msgspec.json.decode(text)), RetryPolicy)
    except msgspec.DecodeError:
        return DEFAULT


def _known_fields(stored: Any) -> Any:
    if not isinstance(stored, dict):
        return stored
    known = {name: value for name, value in stored.items() if name in RetryPolicy.__struct_fields__}
    if isinstance(by_error := known.get("by_error"), dict):
        known["by_error"] = {error_type: _known_fields(inner) for error_type, inner in by_error.items()}
    return known


def policy_to_json(policy: RetryPolicy | None) -> str | None:
    """Return the policy as it is stored with a job."""
    return None if policy is None else msgspec.json.encode(policy).decode()
