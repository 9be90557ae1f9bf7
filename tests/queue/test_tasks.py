"""Tasks: what workers publish of them is kept by tenant and content, listed by name, and swept when nobody says it."""

from __future__ import annotations

import pytest

from tests.queue.steps import Steps
from windlass.errors import InvalidInput
from windlass.queue import retention, tasks

OLD, NEW = '{"parameters":{}}', '{"parameters":{"x":{}}}'


async def test_builds_that_differ_stand_beside_each_other(steps: Steps) -> None:
    """The same signature again is the same row; another one is another; the newest comes first in the list."""
    await tasks.publish(steps.db, "default", {"add": OLD, "mail": OLD})
    steps.clock.advance(120)
    await tasks.publish(steps.db, "default", {"add": NEW})
    await tasks.publish(steps.db, "default", {"add": NEW})

    page = await tasks.list_tasks(steps.db, "default")

    assert [("add", [NEW, OLD]), ("mail", [OLD])] == [(task.name, task.signatures) for task in page.tasks]
    assert steps.clock.now() == page.tasks[0].seen_at


async def test_a_tenant_sees_its_own_tasks(steps: Steps) -> None:
    """Tasks of others are not listed."""
    await tasks.publish(steps.db, "other", {"add": OLD})

    assert [] == (await tasks.list_tasks(steps.db, "default")).tasks


async def test_tasks_are_listed_page_by_page(steps: Steps) -> None:
    """A page goes on after the name that the one before ended with."""
    await tasks.publish(steps.db, "default", dict.fromkeys("abc", OLD))

    first = await tasks.list_tasks(steps.db, "default", limit=2)
    second = await tasks.list_tasks(steps.db, "default", limit=2, cursor=first.next_cursor)

    assert ["a", "b"] == [task.name for task in first.tasks]
    assert (["c"], None) == ([task.name for task in second.tasks], second.next_cursor)


async def test_what_was_published_lately_is_found_with_its_age(steps: Steps) -> None:
    """Only what is younger than asked for, the oldest first; saying it again makes it young."""
    await tasks.publish(steps.db, "default", {"old": OLD, "kept": OLD})
    steps.clock.advance(100)
    await tasks.publish(steps.db, "default", {"new": NEW, "kept": OLD})
    steps.clock.advance(1)

    found = await tasks.recent(steps.db, "default", age_ms=50_000)

    assert {("kept", 1.0), ("new", 1.0)} == {(item.name, item.age_s) for item in found}
    assert ["old"] == [item.name for item in await tasks.recent(steps.db, "default")][:1]


async def test_what_nobody_publishes_any_more_is_swept(steps: Steps) -> None:
    """A week after it was published last a signature goes."""
    await tasks.publish(steps.db, "default", {"add": OLD})
    steps.clock.advance(tasks.KEPT_MS / 1000 - 1)
    await tasks.publish(steps.db, "default", {"mail": OLD})
    steps.clock.advance(2)

    await retention.sweep(steps.db)

    assert ["mail"] == [task.name for task in (await tasks.list_tasks(steps.db, "default")).tasks]


async def test_a_signature_must_be_json_of_bounded_size(steps: Steps) -> None:
    """What is none, or too large, is refused."""
    for text in ("{", f'"{"x" * tasks.MAX_SIGNATURE}"'):
        with pytest.raises(InvalidInput, match="signatures"):
            await tasks.publish(steps.db, "default", {"add": text})


@pytest.mark.parametrize(("bound", "most"), [("MOST_BUILDS", 2), ("MOST_BYTES", len(OLD) + len(NEW))])
async def test_rel_h4_a_tenant_keeps_so_many_signatures(
    steps: Steps, monkeypatch: pytest.MonkeyPatch, bound: str, most: int
) -> None:
    """Beyond a bound of items and bytes those that were told longest ago go, and none of another tenant."""
    await tasks.publish(steps.db, "other", {"add": OLD})
    monkeypatch.setattr(tasks, bound, most)
    for name, text in (("a", OLD), ("b", OLD), ("c", NEW)):
        steps.clock.advance(120)
        await tasks.publish(steps.db, "default", {name: text})

    listed = [[task.name for task in (await tasks.list_tasks(steps.db, who)).tasks] for who in ("default", "other")]

    assert [["b", "c"], ["add"]] == listed


async def test_what_is_renewed_is_kept_and_does_not_become_the_newest(steps: Steps) -> None:
    """A worker that goes on makes its build count for longer."""
    await tasks.publish(steps.db, "default", {"add": OLD})
    steps.clock.advance(120)
    await tasks.publish(steps.db, "default", {"add": NEW})
    steps.clock.advance(120)

    await tasks.renew(steps.db, "default", [("add", tasks.fingerprint(OLD)), ("none", tasks.fingerprint(OLD))])

    [listed] = (await tasks.list_tasks(steps.db, "default")).tasks
    assert ([NEW, OLD], steps.clock.now()) == (listed.signatures, listed.seen_at)
