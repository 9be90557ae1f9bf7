"""The link: how a worker speaks with the servers, in the words of the wire.

Two of them: over HTTP (httplink.py), and to an engine in the same process (enginelink.py).
Each call is one try: Unavailable when nobody answered, and whoever calls decides when to try again.
"""

from __future__ import annotations

from typing import Protocol
from uuid import UUID

from windlass.wire import work as wire


class Link(Protocol):
    """What a worker asks of the servers."""

    async def register(self, request: wire.RegisterRequest) -> wire.Registered:
        """Open a session; Conflict if it has ended."""

    async def heartbeat(self, request: wire.BeatRequest) -> wire.Beat:
        """Renew the session; NotFound or Conflict if it has ended: stop everything it holds."""

    async def claim(self, request: wire.ClaimRequest) -> wire.Claim:
        """Wait for jobs as long as asked; an empty claim when none came."""

    async def report(self, request: wire.ReportRequest) -> wire.Answers:
        """Tell how attempts ended and what they wrote, and take the next jobs with the answer."""

    async def close(self, worker_id: str, *, session: UUID, lost: bool = False) -> None:
        """End a session: what it holds goes back; `lost`: its process died, and what it had begun counts as lost."""

    async def aclose(self) -> None:
        """Let go of connections."""
