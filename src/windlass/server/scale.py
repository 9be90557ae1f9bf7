"""How many workers there should be: for autoscalers outside, over all tenants, of one tenant, or of one queue."""

from __future__ import annotations

import msgspec

from windlass.engine.scaling import Figures, ScalingState, depth_per_worker, desired, policy_from
from windlass.engine.whole import recommendation
from windlass.queue import stats
from windlass.queue.queues import get_queue
from windlass.server.call import Call
from windlass.wire.people import Scale


async def whole(call: Call) -> Scale:
    """Answer how many workers there should be; of one's tenant, or of all from above them."""
    if call.named_tenant is None:
        return await _recommended(call)
    found = await stats.overview(call.engine.db, call.named_tenant)
    return _scale(call, pending=found.pending, running=found.in_progress, workers=found.active_workers)


async def _recommended(call: Call) -> Scale:
    """Answer what the duty `scale` would find now: its cool-down is counted once, for all servers."""
    found = await recommendation(call.engine.db, call.settings)
    return Scale(
        desired_workers=found.desired,
        active_workers=found.workers,
        pending=found.pending,
        in_progress=found.running,
        queue_depth_per_worker=found.depth_per_worker,
        policy=policy_from(call.settings).kind,
    )


async def queue(call: Call) -> Scale:
    """Answer how many workers there should be if this queue were the only one."""
    found = await get_queue(call.engine.db, call.tenant, call.path)
    workers = await stats.active_workers(call.engine.db, call.tenant)
    return _scale(call, pending=found.pending, running=found.in_progress, workers=workers)


def _scale(call: Call, *, pending: int, running: int, workers: int) -> Scale:
    figures = Figures(
        pending_count=pending,
        running_count=running,
        worker_count=workers,
        threads_per_worker=call.settings.workers.threads,
    )
    # Who asks has a cool-down of its own, or asks once: the figure is that of this moment.
    policy = msgspec.structs.replace(policy_from(call.settings), cooldown_s=0.0)
    count, _ = desired(policy, figures, now_s=call.engine.outside.monotonic(), state=ScalingState())
    return Scale(
        desired_workers=count,
        active_workers=workers,
        pending=pending,
        in_progress=running,
        queue_depth_per_worker=depth_per_worker(figures),
        policy=policy.kind,
    )
