"""Scaling: how many workers there should be. Pure: figures in, a number and a state to keep out.

More is asked for at once, but not for work that those there are will have done in a moment, by how long jobs have run
lately (H8), unless some have waited too long already. Fewer are asked for only when fewer were enough for the whole
cool-down, so that a dip costs no workers.
The duty `scale` keeps the state between rounds, as JSON; the local pool and autoscalers outside follow the number.

- `depth`: one worker per waiting job.
- `per_worker`: one worker per `jobs_per_worker` waiting jobs, rounded up.
- `threshold`: above `up_above` waiting jobs half as many again, below `down_below` a tenth fewer, at least one each.
"""

from __future__ import annotations

import math
from typing import Literal

import msgspec

from windlass.config import Settings

SOON_S = 5.0
"""No worker is started for work that is done within this: it would begin when that is over."""
LATE_S = 5.0
"""Jobs that have waited so long want all the workers that the policy gives."""


class Policy(msgspec.Struct, frozen=True, kw_only=True):
    """How the number follows from the figures, and its bounds."""

    kind: Literal["depth", "per_worker", "threshold"] = "depth"
    min_count: int = 2
    max_count: int = 8
    jobs_per_worker: int = 10
    up_above: int = 1000
    down_below: int = 100
    cooldown_s: float = 60.0


class Figures(msgspec.Struct, frozen=True, kw_only=True):
    """What is there now."""

    pending_count: int
    """Jobs due and waiting."""
    worker_count: int = 0
    """Workers alive; where counting begins when there is no state yet."""
    running_count: int = 0
    """Jobs under lease: workers are not called superfluous while so many are needed for these."""
    threads_per_worker: int = 1
    run_s: float | None = None
    """How long a job has run lately, in the mean; none if that is not known."""
    waited_s: float = 0.0
    """How long the one that waits longest has been due."""


class ScalingState(msgspec.Struct, frozen=True, kw_only=True):
    """What is kept between rounds; instants are seconds of the clock that `desired` is given."""

    desired_count: int | None = None
    """The number of the last round; none before the first."""
    lower_since_s: float | None = None
    """Since when fewer would have been enough; none while they would not."""
    most_count: int = 0
    """The most that were asked for since then: scaling in goes no lower."""


def desired(policy: Policy, figures: Figures, *, now_s: float, state: ScalingState) -> tuple[int, ScalingState]:
    """Return how many workers there should be, always within the bounds, and the state for the next round."""
    start = figures.worker_count if state.desired_count is None else state.desired_count
    present = _bounded(policy, start)
    wanted = _wanted(policy, figures, present)
    if wanted >= present:
        return wanted, ScalingState(desired_count=wanted)
    # A clock that went back, after another server took over, begins the cool-down anew.
    began = state.lower_since_s is not None and state.lower_since_s <= now_s
    since_s = state.lower_since_s if began and state.lower_since_s is not None else now_s
    most = max(wanted, state.most_count) if began else wanted
    if now_s - since_s < policy.cooldown_s:
        return present, ScalingState(desired_count=present, lower_since_s=since_s, most_count=most)
    reached = min(present, _bounded(policy, most))
    # The next step in, if this one was not enough, has a cool-down of its own.
    return reached, ScalingState(desired_count=reached, lower_since_s=now_s)


def _wanted(policy: Policy, figures: Figures, present: int) -> int:
    """Return the number for these figures alone, within the bounds."""
    pending = figures.pending_count
    if policy.kind == "depth":
        wanted = pending
    elif policy.kind == "per_worker":
        wanted = _shares(pending, policy.jobs_per_worker)
    elif pending > policy.up_above:
        wanted = present + max(1, present // 2)
    elif pending < policy.down_below:
        wanted = present - max(1, present // 10)
    else:
        wanted = present
    if wanted < present:
        needed = _shares(figures.running_count, figures.threads_per_worker)
        wanted = max(wanted, min(present, needed))
    elif figures.run_s is not None and figures.waited_s < LATE_S:
        work_s = pending * figures.run_s / max(1, figures.threads_per_worker)
        wanted = max(present, min(wanted, math.ceil(work_s / SOON_S)))
    return _bounded(policy, wanted)


def _shares(count: int, each: int) -> int:
    return -(-count // max(1, each))


def _bounded(policy: Policy, count: int) -> int:
    return max(policy.min_count, min(count, policy.max_count))


def depth_per_worker(figures: Figures) -> float:
    """Return the waiting jobs per live worker; all of them where there is none."""
    return figures.pending_count / max(1, figures.worker_count)


def policy_from(settings: Settings) -> Policy:
    """Return the policy that the settings ask for."""
    scaling = settings.scaling
    return Policy(
        kind=scaling.policy,
        min_count=scaling.min,
        max_count=scaling.max,
        jobs_per_worker=scaling.jobs_per_worker,
        up_above=scaling.up_above,
        down_below=scaling.down_below,
        cooldown_s=scaling.cooldown_seconds,
    )
