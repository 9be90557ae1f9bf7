"""Declared schedules: what stands beside the code of a task, and is made so on the servers when a worker starts.

`@app.scheduled(...)` notes them, and sends nothing; `app.declare()` (app.py) sends all of them at once under the name
of the application: servers add, change and remove until they have these. worker/declaring.py does it.
"""

from __future__ import annotations

from collections.abc import Callable, Coroutine, Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Concatenate, ParamSpec, TypeVar, overload

import msgspec

from windlass.client.context import Context
from windlass.client.scheduleoptions import new_fields
from windlass.client.task import Anything, AsyncTask, SyncTask, Task
from windlass.client.triggers import Trigger
from windlass.errors import InvalidInput

if TYPE_CHECKING:
    from windlass.client.app import App

P = ParamSpec("P")
R = TypeVar("R")
T = TypeVar("T", bound=Task[..., Any])


class Declaration(msgspec.Struct, frozen=True, kw_only=True):
    """One schedule that the code asks for."""

    task: Task[..., Any]
    trigger: Trigger
    own_name: str | None
    args: Sequence[Any] = ()
    kwargs: Mapping[str, Any] = {}
    options: Mapping[str, Any] = {}

    @property
    def name(self) -> str:
        """What it is called: the name of its task where none was given."""
        return self.task.name if self.own_name is None else self.own_name

    def fields(self) -> dict[str, Any]:
        """Return it as the API wants it; TypeError or InvalidInput for what does not fit its task."""
        call = self.task.s(*self.args, **self.kwargs)
        return new_fields(call, self.trigger, name=self.name, said=self.options)


class Declarations:
    """The schedules that an application declares."""

    def __init__(self) -> None:
        self._all: list[Declaration] = []
        self._implied: list[Task[..., Any]] = []
        """Tasks that only `@app.scheduled` has made; an `@app.task` above it makes the real one."""

    def by_name(self) -> dict[str, Declaration]:
        """Return them by name, in the order of the code."""
        return {declared.name: declared for declared in self._all}

    def add(self, declared: Declaration) -> None:
        """Note one more; InvalidInput if another has its name, or an error of what does not fit its task."""
        # What an annotation names may be defined further down: then it is seen when it is sent.
        if declared.task.is_known:
            declared.fields()
        self._all = _checked([*(known for known in self._all if not _is_defined_anew(known, declared)), declared])

    def imply(self, task: Task[..., Any]) -> None:
        """Note that nobody but `@app.scheduled` has made this task yet."""
        self._implied.append(task)

    def supersede(self, before: Task[..., Any], after: Task[..., Any]) -> bool:
        """Go over to the task that `@app.task` makes of one that was implied; say whether it was."""
        if not any(task is before for task in self._implied):
            return False
        self._implied = [task for task in self._implied if task is not before]
        replace = msgspec.structs.replace
        self._all = _checked([replace(one, task=after) if one.task is before else one for one in self._all])
        return True


def _is_defined_anew(before: Declaration, after: Declaration) -> bool:
    """Say whether the code of a task was run again, as a cell of a notebook is."""
    was, now = before.task.fn, after.task.fn
    same_place = (was.__module__, was.__qualname__) == (now.__module__, now.__qualname__)
    return before.name == after.name and was is not now and same_place


def _checked(declared: Iterable[Declaration]) -> list[Declaration]:
    found: dict[str, Declaration] = {}
    for one in declared:
        if one.name in found:
            raise InvalidInput(
                "name", f"{one.name!r} names two declared schedules. Give one another: @app.scheduled(…, name=…)."
            )
        found[one.name] = one
    return list(found.values())


def with_name(error: InvalidInput, names: Sequence[str]) -> InvalidInput:
    """Return the error of declaring with the name of the schedule that is meant."""
    if error.batch == "schedules" and error.index is not None and error.index < len(names):
        error.args = (f"{error} It is the declared schedule {names[error.index]!r}.",)
    return error


class ScheduledMaker:
    """`@app.scheduled(...)` with everything said: takes the task, or the function of one."""

    def __init__(
        self,
        app: App,
        trigger: Trigger,
        *,
        name: str | None,
        args: Sequence[Any],
        kwargs: Mapping[str, Any],
        options: Mapping[str, Any],
    ) -> None:
        self._app = app
        self._trigger = trigger
        self._name = name
        self._args = tuple(args)
        self._kwargs = dict(kwargs)
        self._options = options

    @overload
    def __call__(self, fn: T) -> T: ...  # type: ignore[overload-overlap]
    @overload
    def __call__(self, fn: Callable[Concatenate[Anything, P], Coroutine[Any, Any, R]]) -> AsyncTask[..., R]: ...  # type: ignore[overload-overlap]
    @overload
    def __call__(self, fn: Callable[Concatenate[Anything, P], R]) -> SyncTask[..., R]: ...
    @overload
    def __call__(self, fn: Callable[Concatenate[Context, P], Coroutine[Any, Any, R]]) -> AsyncTask[P, R]: ...  # type: ignore[overload-overlap]
    @overload
    def __call__(self, fn: Callable[Concatenate[Context, P], R]) -> SyncTask[P, R]: ...
    @overload
    def __call__(self, fn: Callable[P, Coroutine[Any, Any, R]]) -> AsyncTask[P, R]: ...  # type: ignore[overload-overlap]
    @overload
    def __call__(self, fn: Callable[P, R]) -> SyncTask[P, R]: ...
    def __call__(self, fn: Callable[..., Any]) -> Any:
        """Declare the schedule; a function becomes a task."""
        declarations = self._app.declarations
        task = fn if isinstance(fn, Task) else self._app.task(fn)
        if task is not fn:
            declarations.imply(task)
        declarations.add(
            Declaration(
                task=task,
                trigger=self._trigger,
                own_name=self._name,
                args=self._args,
                kwargs=self._kwargs,
                options=self._options,
            )
        )
        return task
