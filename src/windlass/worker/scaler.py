"""The scaler: the local pool follows the servers' recommendation, within its own bounds (H5, H8).

More workers come at once; the cool-down before fewer is the servers' (engine/scaling.py). While no server answers the
number stays as it is.
"""

from __future__ import annotations

from typing import Protocol

import httpx2
import msgspec

from windlass import log
from windlass.config import Settings
from windlass.engine.outside import Outside
from windlass.httpclient import AsyncClient, trusted_for
from windlass.wire.people import Scale

TIMEOUT_S = 5.0


class Scaled(Protocol):
    """What has as many workers as it is told."""

    def scale(self, count: int) -> None:
        """Have so many."""


async def follow(fleet: Scaled, settings: Settings, outside: Outside) -> None:
    """Ask how many workers there should be, again and again, and let the fleet have as many."""
    key = settings.client.key
    headers = {"authorization": f"Bearer {key}"} if key else {}
    was_answered = True
    url = settings.server.url
    async with AsyncClient(base_url=url, headers=headers, timeout=TIMEOUT_S, verify=trusted_for(url)) as client:
        while True:
            await outside.pause(settings.workers.scale_interval_ms / 1000)
            try:
                answer = await client.get("/api/v1/autoscale")
                answer.raise_for_status()
                found = msgspec.json.decode(answer.content, type=Scale)
            except (httpx2.HTTPError, msgspec.MsgspecError) as error:
                if was_answered:
                    log.event("scale.unheard", reason=str(error) or type(error).__name__)
                was_answered = False
                continue
            was_answered = True
            fleet.scale(bounded(found.desired_workers, settings))


def bounded(count: int, settings: Settings) -> int:
    """Return how many workers the local pool has when so many are recommended."""
    return max(settings.workers.default_count, min(count, settings.workers.max_count))
