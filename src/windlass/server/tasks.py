"""Tasks: what workers have published of them."""

from __future__ import annotations

import msgspec

from windlass.queue import tasks as step
from windlass.server.call import Call
from windlass.server.shown import in_turns
from windlass.wire import tasks as wire
from windlass.wire.base import NamePages


async def find(call: Call) -> wire.TaskList:
    """Answer a page of tasks by name."""
    asked: NamePages = call.query
    page = await step.list_tasks(call.engine.db, call.tenant, limit=asked.limit, cursor=asked.cursor)
    tasks = [task async for task in in_turns(call, page.tasks, _shown)]
    return wire.TaskList(tasks=tasks, next_cursor=page.next_cursor)


def _shown(call: Call, task: step.Listed) -> wire.Task:
    signatures = [_hidden(call, msgspec.json.decode(text, type=wire.Signature)) for text in task.signatures]
    return wire.Task(name=task.name, signatures=signatures, defaults=signatures[0].defaults, seen_at=task.seen_at)


def _hidden(call: Call, signature: wire.Signature) -> wire.Signature:
    """Return a signature without the secrets in the headers that its jobs get."""
    headers = signature.defaults.headers
    if headers is None:
        return signature
    defaults = msgspec.structs.replace(signature.defaults, headers=call.redactor.value(headers))
    return msgspec.structs.replace(signature, defaults=defaults)
