"""The handle of a job: how it is, what it gave, and what may be done to it.

Every verb stands twice, blocking and with an `a` before it for use in an event loop; both ask the same (requests.py).
Looking and waiting go on over a restart of the server.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable, Iterator
from typing import TYPE_CHECKING, Any, Generic, TypeVar
from uuid import UUID

from windlass.client import requests, results
from windlass.client.options import Span
from windlass.client.results import Ending
from windlass.durations import parse_duration
from windlass.job import FINAL_STATES, State
from windlass.wire import jobs as wire
from windlass.wire.base import MAX_WAIT_S
from windlass.wire.trail import LogPage, ShownLine

if TYPE_CHECKING:
    from windlass.client.shell import Shell

R_co = TypeVar("R_co", covariant=True)

JobInfo = wire.Job
"""Everything about a job."""
AttemptInfo = wire.Attempt
"""One ended attempt of a job."""


class Job(Generic[R_co]):
    """A submitted job; R_co is its result."""

    def __init__(self, shell: Shell, job_id: UUID, *, decode: Callable[[bytes], Any], duplicate: bool = False) -> None:
        self.id = job_id
        self.duplicate = duplicate
        """Whether its key was known when it was submitted: this is the job made first."""
        self._shell = shell
        self._decode = decode

    def __repr__(self) -> str:
        return f"<Job {self.id}>"

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Job) and other.id == self.id

    def __hash__(self) -> int:
        return hash(self.id)

    @property
    def status(self) -> State:
        """How it is, asked now."""
        return self.info().state

    async def astatus(self) -> State:
        """How it is, asked now."""
        return (await self.ainfo()).state

    def info(self) -> wire.Job:
        """Return everything about it; NotFound if there is none, or no more."""
        found: wire.Job = self._shell.call(requests.get(self.id))
        return found

    async def ainfo(self) -> wire.Job:
        """Return everything about it; NotFound if there is none, or no more."""
        found: wire.Job = await self._shell.acall(requests.get(self.id))
        return found

    def result(self, timeout: Span | None = None) -> R_co:
        """Wait for its end and return its result; JobFailed, JobCancelled or JobExpired if it has none.

        TimeoutError after `timeout`; without one it waits as long as it takes, over restarts of the server too.
        """
        tries = self._shell.tries(_seconds(timeout))
        while True:
            wait_s = MAX_WAIT_S if tries.left_s is None else tries.left_s
            job = self._shell.look(requests.wait(self.id, wait_s=wait_s), tries)
            if job is not None and job.state in FINAL_STATES:
                break
            if tries.left_s == 0.0:
                raise results.not_yet(self.id, job, without_server=self._shell.without_server)
        if job.state is State.SUCCEEDED:
            found: R_co = results.value(job, self._decode)
            return found
        raise results.failure(job, self.attempts() if job.state is State.DEAD else [])

    async def aresult(self, timeout: Span | None = None) -> R_co:
        """Wait for its end and return its result; raises as `result` does."""
        tries = self._shell.tries(_seconds(timeout))
        while True:
            wait_s = MAX_WAIT_S if tries.left_s is None else tries.left_s
            job = await self._shell.alook(requests.wait(self.id, wait_s=wait_s), tries)
            if job is not None and job.state in FINAL_STATES:
                break
            if tries.left_s == 0.0:
                raise results.not_yet(self.id, job, without_server=self._shell.without_server)
        if job.state is State.SUCCEEDED:
            found: R_co = results.value(job, self._decode)
            return found
        raise results.failure(job, await self.aattempts() if job.state is State.DEAD else [])

    def cancel(self, reason: str | None = None, *, wait: Span | None = None) -> State:
        """Cancel it and return its state: cancelled, or cancelling while its worker stops; JobFinished if it ended."""
        answer: wire.Cancelled = self._shell.call(_cancel(self.id, reason, wait))
        return answer.state

    async def acancel(self, reason: str | None = None, *, wait: Span | None = None) -> State:
        """Cancel it and return its state; raises as `cancel` does."""
        answer: wire.Cancelled = await self._shell.acall(_cancel(self.id, reason, wait))
        return answer.state

    def retry(self, reason: str | None = None) -> State:
        """Run it again, dead, cancelled or expired as it is, and return its state; Conflict in any other."""
        answer: wire.Moved = self._shell.call(requests.retry(self.id, reason=reason))
        return answer.state

    async def aretry(self, reason: str | None = None) -> State:
        """Run it again, dead, cancelled or expired as it is, and return its state; Conflict in any other."""
        answer: wire.Moved = await self._shell.acall(requests.retry(self.id, reason=reason))
        return answer.state

    def attempts(self) -> list[wire.Attempt]:
        """Return its ended attempts, oldest first."""
        answer: wire.AttemptList = self._shell.call(requests.attempts(self.id))
        found = answer.attempts
        while answer.next_cursor is not None:
            answer = self._shell.call(requests.attempts(self.id, after=answer.next_cursor))
            found += answer.attempts
        return found

    async def aattempts(self) -> list[wire.Attempt]:
        """Return its ended attempts, oldest first."""
        answer: wire.AttemptList = await self._shell.acall(requests.attempts(self.id))
        found = answer.attempts
        while answer.next_cursor is not None:
            answer = await self._shell.acall(requests.attempts(self.id, after=answer.next_cursor))
            found += answer.attempts
        return found

    def logs(self, *, follow: bool = False) -> Iterator[ShownLine]:
        """Yield the lines that its attempts wrote, oldest first; with `follow` as they come, until it has ended."""
        after: str | None = None
        ended = not follow
        while True:
            page: LogPage = self._shell.call(requests.logs(self.id, after=after))
            yield from page.lines
            after = results.place_after(page, after)
            if page.next_cursor is None:
                if ended:
                    return
                # Before the lines: what an attempt wrote is kept before its end is.
                job: Ending = self._shell.call(requests.wait(self.id, wait_s=results.FOLLOW_S))
                ended = job.state in FINAL_STATES

    async def alogs(self, *, follow: bool = False) -> AsyncIterator[ShownLine]:
        """Yield the lines that its attempts wrote, oldest first; with `follow` as they come, until it has ended."""
        after: str | None = None
        ended = not follow
        while True:
            page: LogPage = await self._shell.acall(requests.logs(self.id, after=after))
            for line in page.lines:
                yield line
            after = results.place_after(page, after)
            if page.next_cursor is None:
                if ended:
                    return
                # Before the lines: what an attempt wrote is kept before its end is.
                job: Ending = await self._shell.acall(requests.wait(self.id, wait_s=results.FOLLOW_S))
                ended = job.state in FINAL_STATES


def _cancel(job_id: UUID, reason: str | None, wait: Span | None) -> requests.Request:
    return requests.cancel(job_id, reason=reason, wait_s=_seconds(wait) or 0.0)


def _seconds(span: Span | None) -> float | None:
    return None if span is None else parse_duration(span, "timeout")
