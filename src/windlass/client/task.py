"""Tasks: functions that can be run as jobs, and still be called.

`@app.task` (app.py) makes them. A task knows how its arguments become a payload and back (arguments.py), and the
options that its jobs get (options.py); a worker runs it by `run` and `encode` (worker/runnable.py).
"""

from __future__ import annotations

import functools
import inspect
from collections.abc import Callable, Coroutine
from typing import TYPE_CHECKING, Any, Generic, Literal, ParamSpec, TypeVar, Unpack
from uuid import UUID

import msgspec

from windlass.client import published, values
from windlass.client.arguments import Arguments
from windlass.client.context import AboutJob, Context
from windlass.client.options import JobOptions, Options
from windlass.client.problems import refuse
from windlass.errors import InvalidInput

if TYPE_CHECKING:
    from typing import Self

    from windlass.client.app import App
    from windlass.client.handle import Job
    from windlass.wire.tasks import Signature

P = ParamSpec("P")
R = TypeVar("R")
R_co = TypeVar("R_co", covariant=True)
Isolation = Literal["thread", "process"]

_NULL = b"null"


class Anything:
    """Stands for every type: who takes this as a first argument takes anything, so no context is meant."""


class Call(Generic[R_co]):
    """One call of a task, not made yet: what `.s(...)` returns and `enqueue_many` takes. Never changed."""

    __slots__ = ("_app", "decode", "name", "options", "payload")

    def __init__(
        self, app: App, name: str, *, payload: bytes, options: Options, decode: Callable[[bytes], Any]
    ) -> None:
        self._app = app
        self.name = name
        self.payload = payload
        self.options = options
        self.decode = decode

    def __repr__(self) -> str:
        return f"<Call of {self.name}: {self.payload[:80]!r}>"

    def enqueue(self) -> Job[R_co]:
        """Submit it and return its handle."""
        [job] = self._app.enqueue_many([self])
        return job

    async def aenqueue(self) -> Job[R_co]:
        """Submit it and return its handle."""
        [job] = await self._app.aenqueue_many([self])
        return job


class Task(Generic[P, R]):
    """A function that can be run as a job. P are its arguments without the context, R is its result."""

    __name__: str

    def __init__(
        self,
        app: App,
        fn: Callable[..., Any],
        *,
        name: str,
        job_options: Options,
        isolation: Isolation | None = None,
        exclusive: bool = False,
        arguments: Arguments | None = None,
    ) -> None:
        functools.update_wrapper(self, fn)
        self.app = app
        self.fn = fn
        self.name = name
        self.isolation = isolation
        self.exclusive = exclusive
        self.job_options = job_options
        self.is_async = inspect.iscoroutinefunction(fn)
        self._arguments = arguments or Arguments(fn, name)
        if arguments is None:
            try:
                self._arguments.check()
            except InvalidInput as error:
                refuse(error)

    def __repr__(self) -> str:
        return f"<Task {self.name}>"

    def __call__(self, *args: P.args, **kwargs: P.kwargs) -> Any:
        """Call the function here and now; one that wants a context gets one with nothing behind it."""
        if self.wants_context and not (args and isinstance(args[0], Context)):
            return self.fn(_context_here(self.name), *args, **kwargs)
        return self.fn(*args, **kwargs)

    @property
    def wants_context(self) -> bool:
        """Whether the first parameter is a Context."""
        return self._arguments.wants_context

    @property
    def is_known(self) -> bool:
        """Whether everything that its annotations name is defined by now, so that a call can be checked."""
        return self._arguments.is_known

    def s(self, *args: P.args, **kwargs: P.kwargs) -> Call[R]:
        """Return the call without making it; TypeError for arguments that Python would refuse."""
        payload = self._arguments.payload(args, kwargs)
        return Call(self.app, self.name, payload=payload, options=self.job_options, decode=self.decode)

    def without_arguments(self) -> Call[R]:
        """Return a call whose arguments are not known yet: only its options count."""
        return Call(self.app, self.name, payload=_NULL, options=self.job_options, decode=self.decode)

    def enqueue(self, *args: P.args, **kwargs: P.kwargs) -> Job[R]:
        """Submit a job and return its handle; TypeError for arguments that Python would refuse."""
        return self.s(*args, **kwargs).enqueue()

    async def aenqueue(self, *args: P.args, **kwargs: P.kwargs) -> Job[R]:
        """Submit a job and return its handle; TypeError for arguments that Python would refuse."""
        return await self.s(*args, **kwargs).aenqueue()

    delay = send = enqueue
    """As users of other job queues know it."""

    def options(self, **said: Unpack[JobOptions]) -> Self:
        """Return the same task with options laid over those it has; this one stays as it is."""
        return type(self)(
            self.app,
            self.fn,
            name=self.name,
            job_options=self.job_options.over(**said),
            isolation=self.isolation,
            exclusive=self.exclusive,
            arguments=self._arguments,
        )

    def run(self, payload: bytes, context: Context) -> Any:
        """Call the function with the arguments that the payload holds; InvalidInput if they do not fit."""
        args, kwargs = self._arguments.read(payload)
        if self._arguments.wants_context:
            return self.fn(context, *args, **kwargs)
        return self.fn(*args, **kwargs)

    def encode(self, value: Any) -> bytes:
        """Return a result as JSON; InvalidInput if it is none."""
        return _NULL if value is None else values.encode(value, "result")

    def decode(self, result: bytes) -> Any:
        """Return a stored result as the type that the function is annotated to return."""
        return self._decoder.decode(result)

    @functools.cached_property
    def _decoder(self) -> msgspec.json.Decoder[Any]:
        kind = self._arguments.hints.get("return", Any)
        return values.decoder(Any if kind is type(None) else kind, "result")

    def signature(self) -> Signature:
        """Return its parameters and options as workers publish them."""
        signature = published.published(self._arguments.own, self._arguments.hints)
        return msgspec.structs.replace(signature, defaults=self.job_options.published())


class SyncTask(Task[P, R]):
    """A task of an ordinary function."""

    if TYPE_CHECKING:

        def __call__(self, *args: P.args, **kwargs: P.kwargs) -> R:
            """Call the function here and now."""


class AsyncTask(Task[P, R]):
    """A task of an `async def` function."""

    if TYPE_CHECKING:

        def __call__(self, *args: P.args, **kwargs: P.kwargs) -> Coroutine[Any, Any, R]:
            """Call the function here and now."""


class _Nothing:
    """What is behind a context where no worker is."""

    stopping: str | None = None
    remaining_s: float | None = None

    def progress(self, value: bytes) -> None:
        """Nobody looks."""

    def checkpoint(self, value: bytes) -> None:
        """There will be no later attempt."""

    def alive(self) -> None:
        """Nobody asks."""


def _context_here(name: str) -> Context:
    return Context(AboutJob(id=UUID(int=0), task=name), _Nothing())
