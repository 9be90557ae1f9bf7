"""A worker that starts tells which schedules its application declares, and works whether it is heard or not."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncIterator, Callable
from typing import Any

import pytest

from tests.worker.running import PATIENCE_S, Plain, quick, working
from windlass import App, cron, log
from windlass.client.context import Context
from windlass.db import Database
from windlass.engine.outside import Outside
from windlass.errors import Forbidden, InvalidSchedule, NameTaken, NotFound, Unavailable, WindlassError
from windlass.wire.schedules import Declared, RefusedSchedule
from windlass.wire.schedules import Schedule as ScheduleInfo
from windlass.worker.declaring import Declaring

NOTHING = Declared(added=[], changed=[], removed=[], unchanged=1)


class Info:
    """What of a schedule is looked at."""

    def __init__(self, name: str, task: str) -> None:
        self.name = name
        self.task = task


class Told(App):
    """An application whose server is the test: what it is told, what it answers, and what it has."""

    def __init__(self, name: str | None = "shop") -> None:
        super().__init__(name, url="http://127.0.0.1:9")
        self.told: list[list[str]] = []
        self.answers: list[Declared | Exception] = []
        self.asked: list[str | None] = []
        self.left: list[Info] | Exception = []
        self.schedules.ainfos = self._infos  # type: ignore[assignment, method-assign]

    async def adeclare(self, *, dry_run: bool = False, skip_refused: bool = False) -> Declared:
        """Note it, and answer the next answer."""
        self.told.append(list(self.declared))
        answer = self.answers.pop(0) if self.answers else NOTHING
        if isinstance(answer, Exception):
            raise answer
        return answer

    async def _infos(self, *, owner: str | None) -> AsyncIterator[Info | ScheduleInfo]:
        self.asked.append(owner)
        if isinstance(self.left, Exception):
            raise self.left
        for info in self.left:
            yield info


@pytest.fixture
def app() -> Told:
    """An application with one declared schedule."""
    made = Told()

    @made.scheduled(cron("@daily"))
    def report() -> None: ...

    return made


@pytest.fixture
def lines(caplog: pytest.LogCaptureFixture) -> Callable[[], list[tuple[str, dict[str, Any]]]]:
    """Return what was logged about schedules."""
    caplog.set_level(logging.INFO, logger="windlass")

    def found() -> list[tuple[str, dict[str, Any]]]:
        said = [record.msg for record in caplog.records if isinstance(record.msg, log.Line)]
        return [(line.name, dict(line.fields)) for line in said if line.name.startswith("schedules.")]

    return found


def outside(pauses: list[float]) -> Outside:
    """Return an outside whose pauses are noted and last no time."""

    async def pause(pause_s: float) -> None:
        pauses.append(pause_s)
        await asyncio.sleep(0)

    return Outside(pause=pause, chance=lambda: 1.0)


async def begun(app: App, pauses: list[float] | None = None) -> Declaring:
    """Have it told, to the end."""
    declaring = Declaring(app, outside=outside([] if pauses is None else pauses), wait_s=PATIENCE_S)
    await declaring.begin()
    return declaring


async def test_what_changed_is_one_line(app: Told, lines: Callable[[], Any]) -> None:
    """Added, changed and removed ones are shown; once for a start, however often it is begun."""
    app.answers = [Declared(added=["report"], changed=["a"], removed=["b"], unchanged=2)]

    declaring = await begun(app)
    await declaring.begin()

    assert [["report"]] == app.told
    assert [
        ("schedules.declared", {"app": "shop", "added": ["report"], "changed": ["a"], "removed": ["b"], "unchanged": 2})
    ] == lines()


async def test_where_the_log_has_only_warnings_people_are_told(app: Told, capsys: pytest.CaptureFixture[str]) -> None:
    """`windlass up` logs warnings: there one sentence says what changed, with a few of the names."""
    app.answers = [Declared(added=[str(n) for n in range(7)], changed=["a\x1bb"], removed=[], unchanged=0)]
    logging.getLogger("windlass").setLevel(logging.WARNING)

    await Declaring(app).begin()

    assert "Schedules of shop: added 0, 1, 2, 3, 4 and 2 more; changed 'a\\x1bb'.\n" == capsys.readouterr().err


async def test_where_nothing_changed_nothing_is_said(app: Told, lines: Callable[[], Any]) -> None:
    """The tenth worker of a fleet has nothing to tell."""
    await begun(app)

    assert [["report"]] == app.told
    assert [] == lines()


async def test_it_is_tried_again_until_a_server_hears(app: Told, lines: Callable[[], Any]) -> None:
    """With longer and longer pauses; only the first failure is said, and then what changed."""
    pauses: list[float] = []
    app.answers = [
        NotFound("a server too old"),
        *[Unavailable("nobody")] * 8,
        Declared(added=["report"], changed=[], removed=[], unchanged=0),
    ]

    await begun(app, pauses)

    assert [2, 4, 8, 16, 32, 60, 60, 60, 60] == pauses
    assert ["schedules.unheard", "schedules.declared"] == [name for name, _ in lines()]


@pytest.mark.parametrize(
    "error", [InvalidSchedule("cron", "hour 25."), Forbidden("no"), NameTaken("x"), ValueError("a user's")]
)
async def test_what_is_refused_is_said_and_not_repeated(app: Told, lines: Callable[[], Any], error: Exception) -> None:
    """A wrong expression, a key that may not, an argument that is no JSON: the worker goes on without."""
    app.answers = [error]

    await begun(app)

    assert [["report"]] == app.told
    assert ["schedules.refused"] == [name for name, _ in lines()]


async def test_each_one_that_is_refused_is_a_line(app: Told, lines: Callable[[], Any]) -> None:
    """With its name and the reason; the others were made."""
    refused = [RefusedSchedule(name=name, reason=f"why {name}") for name in ("a", "b")]
    app.answers = [Declared(added=["report"], changed=[], removed=[], unchanged=0, refused=refused)]

    await begun(app)

    assert [
        ("schedules.refused", {"app": "shop", "schedule": "a", "reason": "why a"}),
        ("schedules.refused", {"app": "shop", "schedule": "b", "reason": "why b"}),
    ] == lines()[:2]
    assert "schedules.declared" == lines()[2][0]


async def test_an_application_without_a_name_says_nothing() -> None:
    """It cannot have declared anything: nobody is asked."""
    app = Told(name=None)

    await begun(app)

    assert ([], []) == (app.told, app.asked)


async def test_the_last_declaration_that_went_is_cleaned_up(lines: Callable[[], Any]) -> None:
    """What is left under its name on the servers, for tasks that it still has, is removed."""
    app = Told()
    app.task(report)
    app.left = [Info("nightly", "report")]
    app.answers = [Declared(added=[], changed=[], removed=["nightly"], unchanged=0)]

    await begun(app)

    assert (["shop"], [[]]) == (app.asked, app.told)
    assert ["schedules.declared"] == [name for name, _ in lines()]


async def test_schedules_of_tasks_that_it_does_not_have_are_left_alone(lines: Callable[[], Any]) -> None:
    """Another application may have its name by mistake: that is said, and nothing is removed."""
    app = Told()
    app.task(report)
    app.left = [Info("nightly", "report"), Info("mails", "mail.send")]

    await begun(app)

    assert [] == app.told
    assert [("schedules.foreign", {"app": "shop", "schedules": ["mails"]})] == lines()


@pytest.mark.parametrize("left", [[], Forbidden("A worker's key may not look.")])
async def test_who_never_declared_sends_nothing(left: list[Info] | WindlassError, lines: Callable[[], Any]) -> None:
    """No schedules under its name, or none that it may see: nothing is sent and nothing said."""
    app = Told()
    app.left = left

    await begun(app)

    assert ([], []) == (app.told, lines())


async def test_a_worker_declares_before_it_claims(db: Database, app: Told) -> None:
    """When the first job is claimed, its schedule is there already."""
    order = []

    async def before() -> None:
        order.append("declared")
        await Declaring(app).begin()

    async def watched(name: str, call: Callable[[], Any]) -> Any:
        order.append(name)
        return await call()

    async with working(db, {"echo": Plain(echo)}, before_claims=before, breaks=watched) as work:
        job = await work.submit("echo", 1)

        assert 1 == await work.result(job)

    assert [["report"]] == app.told
    assert ["register", "declared", "claim"] == [name for name in order if name != "heartbeat"][:3]


async def test_a_worker_works_though_nobody_hears_its_schedules(db: Database, app: Told) -> None:
    """A declaration that is never answered holds up the first claim a moment, and nothing else."""
    never = asyncio.Event()

    async def hang(*, dry_run: bool = False, skip_refused: bool = False) -> Declared:
        app.told.append([])
        await never.wait()
        return NOTHING

    app.adeclare = hang  # type: ignore[method-assign]
    declaring = Declaring(app, wait_s=0.01)

    async with working(db, {"echo": Plain(echo)}, settings=quick(), before_claims=declaring.begin) as work:
        job = await work.submit("echo", 1)

        assert 1 == await work.result(job)
    await declaring.end()

    assert [[]] == app.told


def report() -> None:
    """Be the function of a task."""


def echo(payload: Any, context: Context) -> Any:
    """Return the payload."""
    return payload
