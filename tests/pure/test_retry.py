"""Retry decisions: the figures of the policies, and what follows a failure or a lost lease."""

from __future__ import annotations

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from windlass.queue.retry import (
    DEFAULT,
    PRESETS,
    Again,
    Loss,
    Never,
    RetryPolicy,
    after_failure,
    after_loss,
    policy_from_json,
    policy_to_json,
    wait_s,
)

CHANCES = st.floats(0, 1)
ATTEMPTS = st.integers(1, 1000)


def failed(
    policy: RetryPolicy,
    attempt: int,
    *,
    max_attempts: int = 3,
    retryable: bool = True,
    error_type: str | None = None,
    chance: float = 0.0,
) -> Again | Never:
    """Decide after a failure, with the usual values for what a test does not name."""
    return after_failure(
        policy, attempt=attempt, max_attempts=max_attempts, retryable=retryable, error_type=error_type, chance=chance
    )


def lost(
    attempt: int,
    *,
    lost: int,
    started: bool,
    policy: RetryPolicy = DEFAULT,
    max_attempts: int = 3,
    max_lost: int = 5,
) -> Loss:
    """Decide after a lost lease, likewise."""
    return after_loss(
        policy, attempt=attempt, max_attempts=max_attempts, lost=lost, max_lost=max_lost, started=started, chance=0.0
    )


def test_the_default_doubles_from_two_seconds() -> None:
    """2, 4, 8 … 1024 seconds after attempts 1 to 10, 2048 after 11, and the cap of an hour from attempt 12 on."""
    waits = [wait_s(DEFAULT, attempt=attempt, chance=0.0) for attempt in range(1, 15)]

    assert [2, 4, 8, 16, 32, 64, 128, 256, 512, 1024, 2048, 3600, 3600, 3600] == waits


@given(ATTEMPTS, CHANCES)
def test_jitter_adds_up_to_a_tenth(attempt: int, chance: float) -> None:
    """Chance adds 0 to 10 % of the wait and never takes any away; a thousandth attempt does not overflow."""
    plain = wait_s(DEFAULT, attempt=attempt, chance=0.0)

    with_jitter = wait_s(DEFAULT, attempt=attempt, chance=chance)

    assert plain <= with_jitter <= plain * 1.1 + 1e-9
    assert plain * 1.1 == pytest.approx(wait_s(DEFAULT, attempt=attempt, chance=1.0))


@pytest.mark.parametrize(
    ("waits", "policy"),
    [
        ([5, 10, 15, 20], RetryPolicy(kind="linear", base_s=5)),
        ([5, 10, 12, 12], RetryPolicy(kind="linear", base_s=5, cap_s=12)),
        ([7, 7, 7, 7], RetryPolicy(kind="fixed", base_s=7)),
        ([1, 5, 30, 30], RetryPolicy(kind="table", delays_s=(1, 5, 30))),
        ([0, 0, 0, 0], RetryPolicy(kind="table")),
        ([30, 90, 270, 600], RetryPolicy(base_s=10, factor=3, cap_s=600)),
        ([1, 1, 1, 1], RetryPolicy(base_s=1, factor=1)),
        ([0, 0, 0, 0], RetryPolicy(base_s=0)),
    ],
)
def test_the_waits_of_each_kind(waits: list[float], policy: RetryPolicy) -> None:
    """Linear grows by its base, fixed stays, a table repeats its last, exponential has its own base, factor and cap."""
    assert waits == [wait_s(policy, attempt=attempt, chance=0.0) for attempt in range(1, 5)]


def test_stepped_holds_after_three_retries() -> None:
    """Preset stepped: at once on the same worker, after 30 s, after 60 s, then held for a person; four attempts."""
    stepped = PRESETS["stepped"]

    decisions = [failed(stepped, attempt, chance=1.0) for attempt in range(1, 5)]

    assert [Again(0.0, prefer_same_worker=True), Again(30.0), Again(60.0)] == decisions[:3]
    assert Never("Attempt 4 of 4 failed.", held=True) == decisions[3]


def test_immediate_waits_for_nothing() -> None:
    """Preset immediate: again at once, as often as the job's own limit says, on any worker."""
    immediate = PRESETS["immediate"]

    decisions = [failed(immediate, attempt, chance=1.0) for attempt in (1, 2, 3)]

    assert [Again(0.0), Again(0.0), Never("Attempt 3 of 3 failed.")] == decisions


def test_the_default_preset_is_the_default() -> None:
    """Naming the default changes nothing."""
    assert DEFAULT is PRESETS["default"]


@pytest.mark.parametrize(("attempt", "again"), [(1, True), (2, True), (3, False), (4, False)])
def test_attempts_are_used_up(attempt: int, again: bool) -> None:
    """With three attempts the third failure is the last, and the reason says so."""
    decision = failed(DEFAULT, attempt)

    assert again is isinstance(decision, Again)
    assert again or Never(f"Attempt {attempt} of 3 failed.") == decision


def test_one_attempt_means_no_retry() -> None:
    """At most once: the first failure is the end, and a time-out is called by its name."""
    assert Never("Attempt 1 of 1 failed.") == failed(DEFAULT, 1, max_attempts=1)
    assert Never("Attempt 1 of 1 timed out.") == failed(DEFAULT, 1, max_attempts=1, error_type="timeout")


def test_a_policy_may_set_its_own_number_of_attempts() -> None:
    """The policy's max_attempts stands instead of the job's, upwards and downwards."""
    assert isinstance(failed(RetryPolicy(max_attempts=5), 4, max_attempts=3), Again)
    assert isinstance(failed(RetryPolicy(max_attempts=2), 2, max_attempts=9), Never)


@pytest.mark.parametrize(("held", "then"), [(False, "dead"), (True, "hold")])
def test_what_is_not_retryable_ends_at_once(held: bool, then: str) -> None:
    """A failure that says it is not retryable ends the job in its first attempt, held if the policy says so."""
    policy = msgspec.convert({"then": then}, RetryPolicy)

    assert Never("The error is not retryable.", held) == failed(policy, 1, retryable=False)


def test_an_error_type_may_have_its_own_policy() -> None:
    """`by_error` replaces the whole policy for errors of its type, and no others."""
    inner = RetryPolicy(kind="fixed", base_s=60, jitter=0, max_attempts=2, then="hold")
    policy = RetryPolicy(by_error={"network_error": inner})

    assert Again(60.0) == failed(policy, 1, error_type="network_error")
    assert Never("Attempt 2 of 2 failed.", held=True) == failed(policy, 2, error_type="network_error")
    assert Again(2.0) == failed(policy, 1, error_type="timeout")
    assert Again(2.0) == failed(policy, 1, error_type=None)


@pytest.mark.parametrize("delay_s", [30.0, 0.001])
def test_a_wait_needs_no_preference(delay_s: float) -> None:
    """Only a retry without wait is kept for the same worker; after a wait any may have it."""
    policy = RetryPolicy(kind="fixed", base_s=delay_s, jitter=0, prefer_same_worker=True)

    assert Again(delay_s, prefer_same_worker=False) == failed(policy, 1)


def test_a_first_loss_goes_back_at_once() -> None:
    """The first loss may be the worker's own fault: the job is ready again without wait."""
    assert Loss(1, Again(0.0)) == lost(1, lost=1, started=True)
    assert Loss(0, Again(0.0)) == lost(1, lost=1, started=False)


@pytest.mark.parametrize(("losses", "delay_s"), [(2, 4.0), (3, 8.0), (4, 16.0)])
def test_further_losses_wait(losses: int, delay_s: float) -> None:
    """From the second loss on the job is suspect and waits with back-off, by the number of losses."""
    assert Loss(1, Again(delay_s)) == lost(2, lost=losses, started=False)


def test_only_a_told_start_uses_an_attempt() -> None:
    """A lease lost before its start was told gives its attempt back; one that had begun keeps it."""
    assert 2 == lost(3, lost=1, started=False, max_attempts=9).attempt
    assert 3 == lost(3, lost=1, started=True, max_attempts=9).attempt


def test_losses_end_a_job_with_attempts_left() -> None:
    """`lost` reaching max_lost ends the job, at the first of the two limits, with the reason that was reached."""
    assert Loss(1, Never("Its lease was lost 5 times.")) == lost(2, lost=5, started=False, max_attempts=100)
    assert Loss(1, Never("Its lease was lost 1 times.")) == lost(1, lost=1, started=True, max_lost=1)


def test_attempts_end_a_job_with_losses_left() -> None:
    """A loss that used the last attempt ends the job; one before its start does not."""
    dead = lost(3, lost=1, started=True)

    assert Loss(3, Never("Worker crashed or timed out in attempt 3 of 3.")) == dead
    assert Loss(2, Again(0.0)) == lost(3, lost=1, started=False)


def test_a_lost_job_may_be_held() -> None:
    """A policy that holds, holds after losses too."""
    hold = RetryPolicy(then="hold")

    assert Loss(3, Never("Worker crashed or timed out in attempt 3 of 3.", held=True)) == lost(
        3, lost=1, started=True, policy=hold
    )
    assert Loss(0, Never("Its lease was lost 5 times.", held=True)) == lost(1, lost=5, started=False, policy=hold)


@given(
    st.integers(1, 20), st.integers(1, 20), st.integers(1, 20), st.integers(1, 20), st.booleans(), CHANCES, st.data()
)
def test_every_loss_comes_nearer_to_an_end(
    attempt: int, max_attempts: int, losses: int, max_lost: int, started: bool, chance: float, data: st.DataObject
) -> None:
    """After max_lost losses no job goes on, and no wait is negative, whatever its policy."""
    policy = data.draw(st.sampled_from(list(PRESETS.values())))

    loss = after_loss(
        policy,
        attempt=attempt,
        max_attempts=max_attempts,
        lost=losses,
        max_lost=max_lost,
        started=started,
        chance=chance,
    )

    assert 0 <= loss.attempt <= attempt
    assert losses < max_lost or isinstance(loss.then, Never)
    assert isinstance(loss.then, Never) or loss.then.delay_s >= 0


POLICIES = st.builds(
    RetryPolicy,
    kind=st.sampled_from(["exponential", "linear", "fixed", "table"]),
    base_s=st.floats(0, 1e6),
    factor=st.floats(1, 100),
    cap_s=st.floats(0, 1e6),
    jitter=st.floats(0, 1),
    delays_s=st.lists(st.floats(0, 1e6), max_size=5).map(tuple),
    prefer_same_worker=st.booleans(),
    max_attempts=st.none() | st.integers(1, 1000),
    then=st.sampled_from(["dead", "hold"]),
)


@given(POLICIES, ATTEMPTS, CHANCES)
def test_no_policy_waits_longer_than_its_cap(policy: RetryPolicy, attempt: int, chance: float) -> None:
    """A wait lies between nothing and the cap with its jitter, and is a number."""
    assert 0 <= wait_s(policy, attempt=attempt, chance=chance) <= policy.cap_s * (1 + policy.jitter) * (1 + 1e-9)


@given(POLICIES, st.dictionaries(st.text(max_size=5), POLICIES, max_size=2))
def test_a_stored_policy_comes_back(policy: RetryPolicy, by_error: dict[str, RetryPolicy]) -> None:
    """What is stored with a job is read back equal; none stored is the default."""
    whole = msgspec.structs.replace(policy, by_error=by_error)

    assert whole == policy_from_json(policy_to_json(whole))
    assert policy_to_json(None) is None
    assert DEFAULT is policy_from_json(None)


def test_an_unknown_field_is_refused() -> None:
    """A misspelt field of a policy that a caller sends is an error, not the default."""
    with pytest.raises(msgspec.ValidationError, match="base_ms"):
        msgspec.json.decode('{"base_ms": 5}', type=RetryPolicy)


def test_a_stored_field_of_another_version_is_passed_over() -> None:
    """What a newer server has stored is read as far as it is known here, by error type too."""
    stored = '{"kind": "fixed", "base_s": 5, "new": [1], "by_error": {"E": {"base_s": 7, "newer": {"a": 1}}}}'

    expected = RetryPolicy(kind="fixed", base_s=5.0, by_error={"E": RetryPolicy(base_s=7.0)})
    assert expected == policy_from_json(stored)


@pytest.mark.parametrize(
    "stored",
    [
        '{"kind": "fibonacci"}',
        '{"base_s": "soon"}',
        '{"by_error": {"E": 1}}',
        '{"by_error": []}',
        "[1]",
        "null",
        "{",
        "",
        "{} {}",
    ],
)
def test_a_stored_policy_that_cannot_be_read_is_the_default(stored: str) -> None:
    """A job must not be left behind for a policy that only another version can read."""
    assert policy_from_json(stored) == DEFAULT
