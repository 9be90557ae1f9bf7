"""Explain, with large fleets: what workers say is read up to a bound, read once, and in turns with other callers."""

from __future__ import annotations

from typing import Any
from uuid import UUID

import pytest

from tests.queue.steps import Steps, at_once
from tests.queue.test_list_bytes import MOST, TEXT, Weighed
from windlass.queue import explain, history, views

WORKERS = 8
LANES = 6


@pytest.fixture
def weighed(steps: Steps, monkeypatch: pytest.MonkeyPatch) -> Weighed:
    """The database, with looks at workers that are over early."""
    monkeypatch.setattr(explain, "WORKER_BYTES", MOST)
    return Weighed(steps.db)


class Turns:
    """Counts how often others could have had their turn."""

    def __init__(self) -> None:
        self.count = 0

    async def give_way(self) -> None:
        """Count."""
        self.count += 1


async def why(db: Any, job_id: UUID) -> tuple[str, str]:
    """Return the code and the sentence of the one reason why a job waits."""
    job = await history.get(db, job_id, tenant="default")
    [reason] = await explain.reasons(db, job, give_way=at_once)
    return reason.code, reason.detail


def saying(number: int, tasks: str = "other") -> str:
    """Return a text that no other worker has."""
    return f"{tasks},{number}".ljust(TEXT, "x")


async def test_what_workers_say_is_read_up_to_a_bound(steps: Steps, weighed: Weighed) -> None:
    """X9, H4: no more is read than the bound, and it is told who was looked at; none is said to be missing."""
    for number in range(WORKERS):
        await steps.worker(f"w{number}", tasks=saying(number))
    job = await steps.submit_one()
    weighed.octets = 0

    told = await why(weighed, job)
    stuck = await explain.stuck_lanes(weighed, "default", give_way=at_once)

    assert weighed.octets < 2 * (MOST + TEXT) + TEXT
    assert ("turn", True) == (told[0], told[1].endswith("Only 4 of 8 live workers were looked at. None of these can."))
    assert explain.Stuck([], complete=False) == stuck


async def test_one_worker_that_says_more_than_the_bound_is_looked_at(steps: Steps, weighed: Weighed) -> None:
    """X9: or nobody would seem to be there."""
    await steps.worker(tasks=saying(0) + "y" * MOST)

    assert "no_worker_for_task" == (await why(weighed, await steps.submit_one()))[0]


async def test_who_comes_later_hides_nobody(steps: Steps, weighed: Weighed) -> None:
    """X9: workers that have run longest are looked at first, however much later ones say."""
    await steps.worker("zoe", tasks="mail", capacity=4)
    for number in range(WORKERS):
        steps.clock.advance(1)
        await steps.worker(f"w{number}", tasks=saying(number))

    told = await why(weighed, await steps.submit_one())

    assert ("turn", True) == (told[0], "1 worker can run it; 0 of 4 threads" in told[1])


async def test_no_more_workers_are_looked_at_than_the_bound(steps: Steps, monkeypatch: pytest.MonkeyPatch) -> None:
    """X9: however little they say; beyond it nothing is said to be missing."""
    monkeypatch.setattr(explain, "WORKERS", 3)
    for number in range(5):
        await steps.worker(f"w{number}", tasks=f"t{number}")

    told = await why(steps.db, await steps.submit_one())

    assert ("turn", True) == (told[0], "Only 3 of 3 or more live workers were looked at." in told[1])


async def test_hundreds_of_workers_are_looked_at_whole(steps: Steps) -> None:
    """X9: fifty tasks each, and a label of its own: the one that a job wants is found, and all are counted."""
    tasks = ",".join(["mail", *(f"application.module.task_{number}" for number in range(50))])
    for number in range(300):
        await steps.worker(f"w{number}", queues="default", tasks=tasks, labels=f"host={number},eu", capacity=2)

    one = await why(steps.db, await steps.submit_one(labels=("eu", "host=277")))
    every = await why(steps.db, await steps.submit_one())
    none = await why(steps.db, await steps.submit_one(labels=("eu", "host=300")))

    assert ("turn", "It waits for its turn: 1 worker can run it; 0 of 2 threads are busy.") == one
    assert ("turn", "It waits for its turn: 300 workers can run it; 0 of 600 threads are busy.") == every
    assert "no_worker_for_labels" == none[0]


async def test_a_text_is_read_once_for_all_lanes(steps: Steps, monkeypatch: pytest.MonkeyPatch) -> None:
    """X9: lanes and workers are not compared pair by pair; others get their turn after each lane and each text."""
    parsed: list[str] = []
    names = explain._names

    def counted(text: str) -> frozenset[str]:
        parsed.append(text)
        return names(text)

    monkeypatch.setattr(explain, "_names", counted)
    for number in range(WORKERS):
        await steps.worker(f"w{number}", queues="default", tasks="mail,post", labels=f"g{number}")
    for number in range(LANES):
        await steps.submit_one(labels=("l", f"l{number}"))
    turns = Turns()

    found = await explain.stuck_lanes(steps.db, "default", give_way=turns.give_way)

    assert ["no_worker_for_labels"] * LANES == [lane.reason.code for lane in found.lanes]
    texts = WORKERS + 2  # their labels, and one text of queues and tasks
    assert texts + 2 * LANES >= len(parsed)
    assert WORKERS + texts + 2 * LANES == turns.count


async def test_lanes_are_read_as_they_are_shown(steps: Steps, monkeypatch: pytest.MonkeyPatch) -> None:
    """H4: names and labels of lanes end the list where it is full, and it says so."""
    monkeypatch.setattr(views, "LIST_BYTES", MOST)
    for number in range(WORKERS):
        await steps.submit_one(f"t{number}", labels=tuple(f"{n}".ljust(TEXT // 5, "x") for n in range(5)))
    weighed = Weighed(steps.db)

    found = await explain.stuck_lanes(weighed, "default", give_way=at_once)

    assert (["t0", "t1", "t2"], False) == ([lane.task for lane in found.lanes], found.complete)
    assert weighed.octets < MOST + TEXT
