"""Health, version, the document of the API and its page: what is open to everybody."""

from __future__ import annotations

from windlass import __version__
from windlass.server import reference
from windlass.server.call import Call, Reply
from windlass.wire.admin import Health, Version


async def health(call: Call) -> Reply:
    """Answer 200 while this server can take work: its database answers, and it is not stopping."""
    reasons = ["This server is stopping."] if call.engine.draining else []
    status = 503 if reasons else 200
    return Reply(status, Health(status="unavailable" if reasons else "ok", server=call.engine.name, reasons=reasons))


async def version(_call: Call) -> Version:
    """Answer what runs here."""
    return Version(version=__version__, api=["v1"])


async def document(call: Call) -> Reply:
    """Answer the OpenAPI document."""
    return Reply(200, call.documents.json)


async def docs(call: Call) -> Reply:
    """Answer the reference page."""
    return Reply(
        200, call.documents.html, ((b"content-security-policy", reference.POLICY),), b"text/html; charset=utf-8"
    )
