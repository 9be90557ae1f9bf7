"""What a claim answers can be read back by a worker."""

from __future__ import annotations

import msgspec
import pytest
from msgspec import Raw

from tests.worker.poolsrig import claimed
from windlass.wire import work as wire


@pytest.mark.parametrize("value", [b"null", b'{"a":1}', b'["a"]', b"7"])
def test_a_worker_reads_what_a_claim_says(value: bytes) -> None:
    """Headers, tags and checkpoint come through, whether they are there or not."""
    job = msgspec.structs.replace(claimed("add"), checkpoint=Raw(value), headers=Raw(value), tags=Raw(value))
    text = msgspec.json.encode(wire.Claim(jobs=[job], cancel=[]))

    [read] = msgspec.json.decode(text, type=wire.Claim).jobs

    assert [value] * 3 == [bytes(read.checkpoint), bytes(read.headers), bytes(read.tags)]
