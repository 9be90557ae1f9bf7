"""Scaling: out at once, in only after the cool-down, never beyond the bounds."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from windlass.config import load
from windlass.engine.scaling import (
    Figures,
    Policy,
    ScalingState,
    depth_per_worker,
    desired,
    policy_from,
)

DEPTH = Policy()
PER_WORKER = Policy(kind="per_worker", min_count=3, max_count=20)
THRESHOLD = Policy(kind="threshold", min_count=10, max_count=1000)


def first(policy: Policy, pending: int, workers: int = 0) -> int:
    """Return what is asked for in the first round."""
    figures = Figures(pending_count=pending, worker_count=workers)
    return desired(policy, figures, now_s=0.0, state=ScalingState())[0]


def rounds(policy: Policy, *steps: tuple[float, int], workers: int = 0, **figures: Any) -> list[int]:
    """Return what is asked for at these times with these depths, one round after the other."""
    state, counts = ScalingState(), []
    for now_s, pending in steps:
        seen = Figures(pending_count=pending, worker_count=workers, **figures)
        count, state = desired(policy, seen, now_s=now_s, state=state)
        counts.append(count)
    return counts


@pytest.mark.parametrize(("pending", "count"), [(0, 2), (1, 2), (2, 2), (5, 5), (8, 8), (9, 8), (10**9, 8)])
def test_depth_is_one_worker_per_job(pending: int, count: int) -> None:
    """Policy depth: as many workers as jobs wait, from 2 to 8."""
    assert count == first(DEPTH, pending)


@pytest.mark.parametrize(
    ("pending", "count"), [(0, 3), (30, 3), (31, 4), (100, 10), (101, 11), (200, 20), (201, 20), (10**9, 20)]
)
def test_per_worker_is_one_worker_per_ten_jobs(pending: int, count: int) -> None:
    """Policy per_worker: a tenth of what waits, rounded up, from 3 to 20; 100 waiting are 10 workers."""
    assert count == first(PER_WORKER, pending)


@pytest.mark.parametrize(
    ("pending", "workers", "count"),
    [
        (1001, 10, 15),
        (1000, 10, 10),
        (500, 300, 300),
        (100, 20, 20),
        (1001, 0, 15),
        (1001, 900, 1000),
        (1001, 1000, 1000),
    ],
)
def test_threshold_goes_up_by_half(pending: int, workers: int, count: int) -> None:
    """Policy threshold: above 1000 waiting half as many again; between the thresholds nothing changes."""
    assert count == first(THRESHOLD, pending, workers)


def test_threshold_goes_down_by_a_tenth_per_cool_down() -> None:
    """Below 100 waiting a tenth goes, at least one, each time after a cool-down of its own."""
    steps = [(float(at), 0) for at in range(0, 301, 60)]

    assert [30, 27, 25, 23, 21, 19] == rounds(THRESHOLD, *steps, workers=30)


def test_between_the_thresholds_nobody_goes() -> None:
    """From 100 to 1000 waiting jobs the number stays, however long."""
    assert [30, 30, 30, 27] == rounds(THRESHOLD, (0, 100), (60, 100), (61, 99), (121, 99), workers=30)


def test_threshold_steps_by_at_least_one() -> None:
    """With few workers a half or a tenth is none: then it is one."""
    small = Policy(kind="threshold", min_count=1, max_count=5)

    assert [2, 3] == rounds(small, (0, 2000), (1, 2000), workers=1)
    assert [5, 4, 3] == rounds(small, (0, 0), (60, 0), (120, 0), workers=5)


def test_out_is_immediate_and_in_waits() -> None:
    """More load is met at once; less load only when it lasted for the cool-down."""
    steps = [(0, 5), (1, 8), (2, 0), (61, 0), (62, 0)]

    assert [5, 8, 8, 8, 2] == rounds(DEPTH, *steps)


def test_a_peak_within_the_cool_down_begins_it_anew() -> None:
    """What needs all workers again shows that none was superfluous."""
    assert [8, 8, 8, 8, 2] == rounds(DEPTH, (0, 8), (1, 0), (50, 8), (61, 0), (121, 0))
    assert [8, 8, 8, 8, 8, 2] == rounds(DEPTH, (0, 8), (1, 0), (50, 8), (55, 0), (61, 0), (115, 0))


def test_in_goes_no_lower_than_what_was_asked_for_meanwhile() -> None:
    """The most that the cool-down asked for is what is kept; a dip at its end does not decide."""
    assert [8, 8, 8, 6, 6, 2] == rounds(DEPTH, (0, 8), (1, 3), (30, 6), (61, 0), (120, 0), (121, 0))


def test_workers_that_run_jobs_are_not_superfluous() -> None:
    """An empty queue does not send workers away whose jobs still run."""
    assert [8, 8] == rounds(DEPTH, (0, 0), (60, 0), workers=8, running_count=8)
    assert [8, 5] == rounds(DEPTH, (0, 0), (60, 0), workers=8, running_count=9, threads_per_worker=2)
    assert [2, 2] == rounds(DEPTH, (0, 0), (60, 0), workers=2, running_count=50)


@pytest.mark.parametrize(
    ("run_s", "waited_s", "count"),
    [(None, 0.0, 8), (0.5, 0.0, 8), (0.001, 0.0, 2), (0.05, 0.0, 3), (0.001, 5.0, 8), (3600.0, 0.0, 8)],
    ids=["unknown", "half a second", "a moment", "a little", "late already", "an hour"],
)
def test_nobody_is_started_for_work_that_is_done_in_a_moment(run_s: float | None, waited_s: float, count: int) -> None:
    """H8: backlog times running time decides, not depth alone; jobs that have waited for long get all there may be."""
    assert [count] == rounds(DEPTH, (0.0, 300), run_s=run_s, waited_s=waited_s)


def test_short_jobs_let_nobody_go() -> None:
    """Running time keeps workers from being started; those there are stay."""
    assert [6] == rounds(DEPTH, (0.0, 300), workers=6, run_s=0.001)


def test_a_clock_that_goes_back_begins_the_cool_down_anew() -> None:
    """After another server took over with an earlier clock, nobody is sent away early."""
    assert [8, 8, 8, 8, 2] == rounds(DEPTH, (0, 8), (1000, 0), (500, 0), (559, 0), (560, 0))


def test_without_a_cool_down_in_is_immediate_too() -> None:
    """A cool-down of 0 follows the figure both ways."""
    assert [8, 2, 5] == rounds(Policy(cooldown_s=0), (0, 8), (0, 0), (0, 5))


def test_new_bounds_hold_at_once() -> None:
    """A bound that was changed is kept in the next round, cool-down or not."""
    _, state = desired(DEPTH, Figures(pending_count=8), now_s=0.0, state=ScalingState())

    count, _ = desired(Policy(min_count=1, max_count=4), Figures(pending_count=8), now_s=1.0, state=state)

    assert 4 == count


def test_new_bounds_hold_at_the_end_of_a_cool_down() -> None:
    """What was asked for under the old bounds does not lead beyond the new ones."""
    state = ScalingState(desired_count=8, lower_since_s=0.0, most_count=7)

    count, _ = desired(Policy(min_count=1, max_count=4), Figures(pending_count=2), now_s=60.0, state=state)

    assert 4 == count


POLICIES = st.builds(
    lambda kind, least, more, each, low, gap, cooldown: Policy(
        kind=kind,
        min_count=least,
        max_count=least + more,
        jobs_per_worker=each,
        down_below=low,
        up_above=low + gap,
        cooldown_s=cooldown,
    ),
    st.sampled_from(["depth", "per_worker", "threshold"]),
    st.integers(0, 20),
    st.integers(0, 50),
    st.integers(1, 20),
    st.integers(0, 50),
    st.integers(0, 50),
    st.floats(0, 100),
)
FIGURES = st.builds(
    Figures,
    pending_count=st.integers(0, 200),
    worker_count=st.integers(0, 100),
    running_count=st.integers(0, 100),
    threads_per_worker=st.integers(1, 5),
)
STEPS = st.lists(st.tuples(st.floats(0, 60), FIGURES), min_size=1, max_size=30)


@given(POLICIES, STEPS)
def test_the_bounds_always_hold(policy: Policy, steps: list[tuple[float, Figures]]) -> None:
    """Whatever the figures, the number lies within the bounds."""
    state, now_s = ScalingState(), 0.0
    for pause_s, figures in steps:
        now_s += pause_s
        count, state = desired(policy, figures, now_s=now_s, state=state)

        assert policy.min_count <= count <= policy.max_count


@given(POLICIES, STEPS)
def test_out_never_waits(policy: Policy, steps: list[tuple[float, Figures]]) -> None:
    """What a round without any past would ask for is there at once, of depth and per_worker."""
    state, now_s = ScalingState(), 0.0
    for pause_s, figures in steps:
        now_s += pause_s
        count, state = desired(policy, figures, now_s=now_s, state=state)
        each = policy.jobs_per_worker if policy.kind == "per_worker" else 1
        asked = min(policy.max_count, -(-figures.pending_count // each))

        assert policy.kind == "threshold" or asked <= count


@given(POLICIES, STEPS)
def test_in_never_comes_within_the_cool_down(policy: Policy, steps: list[tuple[float, Figures]]) -> None:
    """Between any change of the number and a lower one lies at least the cool-down."""
    state, now_s = ScalingState(), 0.0
    changed_at_s, before = 0.0, None
    for pause_s, figures in steps:
        now_s += pause_s
        count, state = desired(policy, figures, now_s=now_s, state=state)
        if before is not None and count < before:
            assert now_s - changed_at_s >= policy.cooldown_s
        if count != before:
            changed_at_s, before = now_s, count


@given(POLICIES, STEPS)
def test_a_stored_state_goes_on_where_it_was(policy: Policy, steps: list[tuple[float, Figures]]) -> None:
    """A server that takes over with the stored state asks for the same as the one before it would have."""
    kept, stored, now_s = ScalingState(), ScalingState(), 0.0
    for pause_s, figures in steps:
        now_s += pause_s
        stored = msgspec.json.decode(msgspec.json.encode(stored), type=ScalingState)
        count, kept = desired(policy, figures, now_s=now_s, state=kept)

        assert (count, kept) == desired(policy, figures, now_s=now_s, state=stored)
        stored = kept


@pytest.mark.parametrize(("pending", "workers", "depth"), [(0, 0, 0.0), (7, 0, 7.0), (100, 10, 10.0), (5, 2, 2.5)])
def test_the_depth_per_worker_is_a_number(pending: int, workers: int, depth: float) -> None:
    """Without workers all that waits lies before the first that comes."""
    assert depth == depth_per_worker(Figures(pending_count=pending, worker_count=workers))


@pytest.mark.parametrize(
    ("policy", "expected"), [("depth", DEPTH), ("per_worker", PER_WORKER), ("threshold", THRESHOLD)]
)
def test_the_presets_follow_from_the_settings(policy: str, expected: Policy, tmp_path: Path) -> None:
    """Naming a policy gives its preset, bounds included."""
    assert expected == policy_from(load({"scaling.policy": policy}, {}, tmp_path).settings)
