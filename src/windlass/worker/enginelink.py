"""The link to an engine in the same process: the same words as over HTTP, without the way.

For tests, benchmarks and small programs. Nothing is authenticated: the worker is its tenant's. A call costs little
here, so a worker does better without claims in its reports (`Worker(…, carries=False)`): both go side by side then.
"""

from __future__ import annotations

from uuid import UUID

from windlass.engine import exchange
from windlass.engine.engine import Engine
from windlass.engine.translate import ask_of, reports_of
from windlass.errors import InvalidInput
from windlass.wire import work as wire


class EngineLink:
    """A worker's way to an engine that runs in its own process."""

    def __init__(self, engine: Engine, tenant: str = "default") -> None:
        self._engine = engine
        self._tenant = tenant

    async def register(self, request: wire.RegisterRequest) -> wire.Registered:
        """Open a session; Conflict if it has ended."""
        return await exchange.register(self._engine, request, tenant=self._tenant)

    async def heartbeat(self, request: wire.BeatRequest) -> wire.Beat:
        """Renew the session; NotFound or Conflict if it has ended."""
        if request.session is None:
            raise InvalidInput("session", "a worker in this process has one. Register first.")
        return await exchange.heartbeat(self._engine, request, session=request.session, tenant=self._tenant)

    async def claim(self, request: wire.ClaimRequest) -> wire.Claim:
        """Wait for jobs as long as asked; an empty claim when none came."""
        ask = ask_of(request, tenant=self._tenant, settings=self._engine.settings)
        return await exchange.told(self._engine, await exchange.claim(self._engine, ask))

    async def report(self, request: wire.ReportRequest) -> wire.Answers:
        """Tell how attempts ended, and take the next jobs with the answer."""
        reports = reports_of(request, tenant=self._tenant, settings=self._engine.settings)
        return await exchange.report(self._engine, request, reports, tenant=self._tenant)

    async def close(self, worker_id: str, *, session: UUID, lost: bool = False) -> None:
        """End a session; what it holds goes back; `lost`: its process died."""
        reason = "Its worker has stopped."
        await exchange.close(self._engine, worker_id, session=session, tenant=self._tenant, lost=lost, reason=reason)

    async def aclose(self) -> None:
        """There is nothing to let go of."""
