"""StatsD: what is sent, in which form, and that nobody waits for it."""

from __future__ import annotations

import asyncio

from windlass.engine.outside import Outside
from windlass.engine.statsd import LONGEST, StatsD, packed


class Receiver(asyncio.DatagramProtocol):
    """Takes datagrams for a test."""

    def __init__(self) -> None:
        self.received: asyncio.Queue[str] = asyncio.Queue()

    def datagram_received(self, data: bytes, addr: object) -> None:
        """Keep a datagram."""
        self.received.put_nowait(data.decode())


async def at_once(_: float) -> None:
    """Wait for nothing but the others."""
    await asyncio.sleep(0)


async def nothing() -> dict[str, float]:
    """No gauges."""
    return {}


def test_what_ended_is_counted_by_name_and_status() -> None:
    """Counters, timings and gauges in StatsD's form; what was sent is not sent again."""
    statsd = StatsD("localhost:8125", gauges=nothing, outside=Outside())
    statsd.executed("mail", "succeeded", run_ms=12)
    statsd.executed("mail", "succeeded", run_ms=None)
    statsd.executed("mail", "failed", run_ms=3)

    lines = statsd.take({"job.queue_depth": 7})

    assert [
        "job.executed:2|c|#name:mail,status:succeeded",
        "job.executed:1|c|#name:mail,status:failed",
        "job.failed:1|c|#name:mail",
        "job.duration:12|ms|#name:mail",
        "job.duration:3|ms|#name:mail",
        "job.queue_depth:7|g",
    ] == lines
    assert [] == statsd.take({})


def test_a_name_cannot_forge_a_line() -> None:
    """What separates fields and lines is replaced in names."""
    statsd = StatsD("localhost:8125", gauges=nothing, outside=Outside())

    statsd.executed("a|b,c:d\ne", "succeeded", run_ms=None)

    assert ["job.executed:1|c|#name:a_b_c_d_e,status:succeeded"] == statsd.take({})


def test_datagrams_have_a_bound() -> None:
    """Lines are packed together, up to what passes any network in one piece."""
    lines = [f"job.executed:{n}|c" for n in range(500)]

    datagrams = packed(lines)

    assert all(len(datagram) <= LONGEST for datagram in datagrams)
    assert lines == b"\n".join(datagrams).decode().split("\n")


async def test_figures_arrive() -> None:
    """A listening agent gets what was counted."""
    loop = asyncio.get_running_loop()
    transport, receiver = await loop.create_datagram_endpoint(Receiver, local_addr=("127.0.0.1", 0))
    host, port = transport.get_extra_info("sockname")
    statsd = StatsD(f"{host}:{port}", gauges=nothing, outside=Outside(pause=at_once))
    statsd.executed("mail", "succeeded", run_ms=None)

    sending = asyncio.create_task(statsd.run())
    text = await asyncio.wait_for(receiver.received.get(), 20)

    sending.cancel()
    transport.close()
    assert "job.executed:1|c|#name:mail,status:succeeded" == text
