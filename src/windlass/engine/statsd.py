"""StatsD: the same figures for those who collect by UDP, where `metrics.statsd_address` is set.

Counted in memory, sent each second, tags in the form that Datadog's agent and Telegraf read. A datagram nobody takes
is lost, and nobody waits for it.
"""

from __future__ import annotations

import asyncio
import logging
from collections import Counter
from collections.abc import Awaitable, Callable, Mapping
from contextlib import suppress

from windlass.engine.outside import Outside

PERIOD_S = 1.0
LONGEST = 1400
"""Bytes of a datagram that pass any network in one piece."""
MOST_TIMINGS = 1000
"""Kept of one period; what comes beyond tells nothing new."""

logger = logging.getLogger("windlass")


class StatsD:
    """Counts, and sends what it has counted."""

    def __init__(self, address: str, *, gauges: Callable[[], Awaitable[Mapping[str, float]]], outside: Outside) -> None:
        host, _, port = address.rpartition(":")
        self._address = (host, int(port))
        self._gauges = gauges
        self._outside = outside
        self._counts: Counter[str] = Counter()
        self._timings: list[str] = []

    def executed(self, task: str, status: str, *, run_ms: int | None) -> None:
        """Count an attempt that ended."""
        self._counts[f"job.executed|#name:{_tag(task)},status:{_tag(status)}"] += 1
        if status != "succeeded":
            self._counts[f"job.failed|#name:{_tag(task)}"] += 1
        if run_ms is not None and len(self._timings) < MOST_TIMINGS:
            self._timings.append(f"job.duration:{run_ms}|ms|#name:{_tag(task)}")

    async def run(self) -> None:
        """Send each second, until cancelled."""
        loop = asyncio.get_running_loop()
        while True:
            await self._outside.pause(PERIOD_S)
            lines = self.take(await self._gauges())
            if lines:
                try:
                    transport, _ = await loop.create_datagram_endpoint(
                        asyncio.DatagramProtocol, remote_addr=self._address
                    )
                except OSError as error:
                    logger.debug("StatsD at %s cannot be reached: %s", self._address, error)
                    continue
                with suppress(OSError):
                    for datagram in packed(lines):
                        transport.sendto(datagram)
                transport.close()

    def take(self, gauges: Mapping[str, float]) -> list[str]:
        """Return the lines to send, and begin to count anew."""
        counts, self._counts = self._counts, Counter()
        timings, self._timings = self._timings, []
        lines = []
        for name, count in counts.items():
            metric, tags = name.split("|", 1)
            lines.append(f"{metric}:{count}|c|{tags}")
        return [*lines, *timings, *(f"{name}:{value:g}|g" for name, value in gauges.items())]


def packed(lines: list[str]) -> list[bytes]:
    """Return the lines in as few datagrams as they fit into."""
    datagrams: list[bytes] = []
    for line in lines:
        text = line.encode()
        if datagrams and len(datagrams[-1]) + 1 + len(text) <= LONGEST:
            datagrams[-1] += b"\n" + text
        else:
            datagrams.append(text)
    return datagrams


def _tag(text: str) -> str:
    """Return a text that stands in a tag: what separates fields is replaced."""
    return "".join("_" if character in "|,:#@\n\r" else character for character in text)[:100]
