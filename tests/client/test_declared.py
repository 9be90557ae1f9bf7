"""Declared schedules: what `@app.scheduled` notes, above and below `@app.task`, and that it sends nothing."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import msgspec
import pytest

from windlass import App, Context, InvalidInput, cron, every
from windlass.client.declared import Declaration, Telling
from windlass.client.schedulerequests import declare
from windlass.client.task import SyncTask, Task
from windlass.wire.schedules import Declared

if TYPE_CHECKING:

    @dataclass
    class Place:
        """What a program defines further down."""

        x: int


DAILY = cron("@daily")


@pytest.fixture
def app() -> App:
    """An application whose server is nowhere: whoever asks it fails."""
    return App("shop", url="http://127.0.0.1:9", patience=0, queue="reports")


def fields_of(app: App, name: str) -> dict[str, Any]:
    """Return a declared schedule as it is sent, as plain JSON."""
    found: dict[str, Any] = msgspec.json.decode(msgspec.json.encode(app.declared[name].fields()))
    return found


def test_above_a_task_it_is_the_same_task(app: App) -> None:
    """The task stays what it is; the schedule has its name and its options."""

    @app.scheduled(DAILY, overlap="allow")
    @app.task(name="mail.report", timeout="5m")
    def report() -> None: ...

    assert app.tasks["mail.report"] is report
    assert ["mail.report"] == list(app.declared)
    assert {
        "name": "mail.report",
        "task": "mail.report",
        "cron": "@daily",
        "timezone": "UTC",
        "overlap": "allow",
        "payload": {},
        "queue": "reports",
        "timeout_seconds": 300.0,
    } == fields_of(app, "mail.report")


def test_below_a_task_the_task_is_that_of_the_other_decorator(app: App) -> None:
    """Whichever stands first: one task, with the name and options of `@app.task`, and its schedule."""

    @app.task(name="mail.report", queue="mail")
    @app.scheduled(DAILY)
    def report() -> None: ...

    assert {"mail.report": report} == app.tasks
    assert ["mail.report"] == list(app.declared)
    assert ("mail.report", "mail") == (fields_of(app, "mail.report")["task"], fields_of(app, "mail.report")["queue"])


def test_a_plain_function_becomes_a_task(app: App) -> None:
    """It can be called and enqueued; its schedule has its name."""

    @app.scheduled(every("5m"))
    def tick(ctx: Context, loud: bool = False) -> str:
        return "TICK" if loud else "tick"

    assert isinstance(tick, SyncTask)
    assert "TICK" == tick(loud=True)
    assert ({"tick": tick}, 300) == (app.tasks, fields_of(app, "tick")["every"])


def test_one_task_may_have_several(app: App) -> None:
    """Each with a name and arguments of its own; above, below or both."""

    @app.scheduled(cron("0 8 * * MON"), name="mondays", kwargs={"day": "mon"})
    @app.task
    @app.scheduled(cron("0 8 * * TUE"), name="tuesdays", args=["tue"])
    @app.scheduled(DAILY)
    def report(day: str = "today") -> None: ...

    assert {"report": report} == app.tasks
    assert {"report": {}, "tuesdays": {"day": "tue"}, "mondays": {"day": "mon"}} == {
        name: fields_of(app, name)["payload"] for name in app.declared
    }
    assert {"report"} == {declared.task.name for declared in app.declared.values()}
    assert all(declared.task is report for declared in app.declared.values())


def test_two_of_one_name_are_refused(app: App) -> None:
    """Two schedules of one task need names; so do those of two tasks that were given the same."""
    with pytest.raises(InvalidInput, match="'report' names two declared schedules"):

        @app.scheduled(DAILY)
        @app.scheduled(every(60))
        def report() -> None: ...

    with pytest.raises(InvalidInput, match="'report' names two"):

        @app.scheduled(DAILY, name="report")
        def other() -> None: ...


def test_code_that_is_run_again_takes_the_place_of_what_it_declared(app: App) -> None:
    """A cell of a notebook may be run twice: the last one counts."""
    for seconds in (60, 120):

        @app.scheduled(every(seconds))
        def tick() -> None: ...

    assert 120 == fields_of(app, "tick")["every"]
    assert tick is app.declared["tick"].task


def test_arguments_that_do_not_fit_are_refused_where_they_stand(app: App) -> None:
    """A missing argument, one too many, a value of another type, and an option that is none."""

    @app.task
    def report(day: str) -> None: ...

    with pytest.raises(TypeError, match="missing a required argument: 'day'"):
        app.scheduled(DAILY)(report)
    with pytest.raises(TypeError, match="too many"):
        app.scheduled(DAILY, args=["mon", "tue"])(report)
    with pytest.raises(InvalidInput, match="day"):
        app.scheduled(DAILY, kwargs={"day": 5})(report)
    with pytest.raises(TypeError, match="overlapp"):
        app.scheduled(DAILY, args=["mon"], overlapp="skip")(report)  # type: ignore[call-arg]
    assert {} == app.declared


def test_what_is_defined_further_down_is_looked_at_later(app: App) -> None:
    """A declaration does not fix how annotations are read, before what they name is there."""

    @app.scheduled(DAILY, kwargs={"place": {"x": "no number"}})
    @app.task
    def move(place: Place) -> None: ...

    globals()["Place"] = dataclass(type("Place", (), {"__annotations__": {"x": int}}))
    try:
        with pytest.raises(InvalidInput, match="x"):
            app.declared["move"].fields()
    finally:
        del globals()["Place"]


def test_an_application_that_declares_needs_a_name() -> None:
    """Two without one would remove each other's schedules: it is refused where it stands."""
    with pytest.raises(InvalidInput, match=r'App: it has no name.*App\("shop"\)'):
        App().scheduled(DAILY)
    with pytest.raises(InvalidInput, match=r'App: it has no name.*App\("shop"\)'):
        App().declare()


def test_a_task_with_other_options_can_be_declared_too(app: App) -> None:
    """`.options(...)` of a task counts, and the task itself stays as it is."""

    @app.task
    def report() -> None: ...

    app.scheduled(DAILY, name="urgent")(report.options(priority=9))

    assert 9 == fields_of(app, "urgent")["priority"]
    assert {"report": report} == app.tasks


def test_an_error_of_declaring_names_the_schedule() -> None:
    """The server counts, people read names."""
    telling = Telling(declare("shop", []), ["nightly", "weekly"], {})

    error = telling.named(InvalidInput("cron", "hour 25.", index=1, batch="schedules"))

    assert "schedules[1].cron: hour 25. It is the declared schedule 'weekly'." == str(error)
    assert "cron: hour 25." == str(telling.named(InvalidInput("cron", "hour 25.")))


def daily(day: str = "") -> None:
    """Be the function of a task."""


def test_one_that_cannot_be_sent_spares_the_others(app: App) -> None:
    """An argument that is seen to be wrong when it is sent: the others go, and servers keep what they have of it."""
    app.declarations._all = [
        Declaration(task=app.task(name=name)(daily), trigger=DAILY, own_name=None, kwargs=kwargs)
        for name, kwargs in (("good", {"day": "mon"}), ("bad", {"hour": 5}))
    ]
    made = Telling.of("shop", app.declared, dry_run=False, skip_refused=True)

    body = msgspec.json.decode(made.request.body or b"")
    assert (["good"], ["bad"], True) == ([one["name"] for one in body["schedules"]], body["keep"], body["skip_refused"])
    [refused] = made.told(Declared(added=["good"], changed=[], removed=[], unchanged=0)).refused
    assert ("bad", True) == (refused.name, "hour" in refused.reason)
    with pytest.raises(TypeError):
        Telling.of("shop", app.declared, dry_run=False, skip_refused=False)


def test_only_what_was_implied_is_replaced(app: App) -> None:
    """A task under two names stays two; its schedule belongs to the one it was declared on."""

    @app.task
    def report() -> None: ...

    app.scheduled(DAILY)(report)
    other: Task[..., None] = app.task(name="other")(report)

    assert {"report": report, "other": other} == app.tasks
    assert report is app.declared["report"].task
