"""`/healthz` of a worker: 200 while all is well, else 503 with the reasons."""

from __future__ import annotations

import asyncio

import httpx2
import pytest

from tests.worker.running import PATIENCE_S
from windlass.errors import SetupError
from windlass.worker.health import answering


async def test_a_worker_that_is_well_answers_200() -> None:
    """And again 200 when what was wrong is over."""
    problems: list[str] = []
    async with (
        answering("127.0.0.1:0", lambda: problems) as port,
        httpx2.AsyncClient(verify=False, timeout=PATIENCE_S) as client,
    ):
        address = f"http://127.0.0.1:{port}/healthz"
        well = await client.get(address)
        problems.append("worker-1 stands still")

        ill = await client.get(address)

        assert (200, {"status": "ok", "reasons": []}) == (well.status_code, well.json())
        assert (503, {"status": "failing", "reasons": problems}) == (ill.status_code, ill.json())
        problems.clear()
        assert 200 == (await client.get(address)).status_code


async def test_nothing_else_is_answered() -> None:
    """Another path is 404; what is no request is not answered."""
    async with answering("127.0.0.1:0", list) as port:
        async with httpx2.AsyncClient(verify=False, timeout=PATIENCE_S) as client:
            assert 404 == (await client.get(f"http://127.0.0.1:{port}/metrics")).status_code
        reader, writer = await asyncio.open_connection("127.0.0.1", port)
        writer.write(b"x" * 100_000 + b"\r\n\r\n")
        writer.write_eof()

        assert b"" == await reader.read()
        writer.close()


async def test_an_address_that_is_taken_is_told() -> None:
    """With the setting to change."""
    async with answering("127.0.0.1:0", list) as port:
        with pytest.raises(SetupError, match=r"worker\.health_address"):
            async with answering(f"127.0.0.1:{port}", list):
                pass
