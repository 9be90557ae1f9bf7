"""The form of a claimed job: what a worker reads is what a server wrote."""

from __future__ import annotations

import msgspec

from tests.worker.poolsrig import claimed
from windlass.wire import work as wire


def test_a_claimed_job_is_read_as_it_was_written() -> None:
    """Headers, tags and checkpoint may be any JSON or null; both come through."""
    full = claimed("a")
    bare = msgspec.structs.replace(claimed("b"), headers=wire.NULL, tags=wire.NULL, checkpoint=wire.NULL)
    text = msgspec.json.encode(wire.Claim(jobs=[full, bare], cancel=[]))

    read = msgspec.json.decode(text, type=wire.Claim)

    assert [full, bare] == read.jobs
