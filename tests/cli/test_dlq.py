"""`windlass dlq`: dead letters by id, by queue, and never by mistake."""

from __future__ import annotations

from tests.cli.conftest import Windlass
from tests.cli.running import Hands

ABSENT = "01997c2e-5b1c-7d2e-8f3a-4b5c6d7e8f90"


def some_dead(hands: Hands, queue: str, *, count: int = 2) -> list[str]:
    """Return jobs that died in a queue."""
    for _ in range(count):
        hands.submit("mail", queue=queue)
    return [hands.kill("mail", queue=queue) for _ in range(count)]


def test_dead_letters_are_listed(windlass: Windlass, hands: Hands, queue: str) -> None:
    """With the error that killed them."""
    ids = some_dead(hands, queue)

    table = windlass("dlq", "list", "--queue", queue)

    assert set(ids) == set(windlass("dlq", "list", "--queue", queue, "-o", "ids").stdout.split())
    assert 2 == table.stdout.count("ValueError: no such address")


def test_those_of_a_queue_are_counted_before_anything_is_done(windlass: Windlass, hands: Hands, queue: str) -> None:
    """Without `--yes`, and without somebody to ask, nothing is done and the count is told."""
    ids = some_dead(hands, queue)

    asked = windlass("dlq", "purge", "--queue", queue)
    done = windlass("dlq", "purge", "--queue", queue, "--yes")
    none = windlass("dlq", "purge", "--queue", queue, "--yes")

    assert 2 == asked.exit_code
    assert "This would purge 2 dead letters. Say --yes" in asked.stderr
    assert (0, "Removed 2 dead letters.\n") == (done.exit_code, done.stdout)
    assert (0, "There are no such dead letters.\n") == (none.exit_code, none.stdout)
    assert 3 == windlass("jobs", "show", ids[0]).exit_code


def test_dead_letters_run_again(windlass: Windlass, hands: Hands, queue: str) -> None:
    """By id or by task; one that is not there is exit code 3, and the others are retried."""
    first, second = some_dead(hands, queue)

    by_id = windlass("dlq", "retry", first, ABSENT)
    by_queue = windlass("dlq", "retry", "--queue", queue, "--task", "mail", "--yes")

    assert (3, "Retried 1 dead letters.\n") == (by_id.exit_code, by_id.stdout)
    assert ABSENT in by_id.stderr
    assert (0, "Retried 1 dead letters.\n") == (by_queue.exit_code, by_queue.stdout)
    assert ["queued", "queued"] == [hands.job(job_id)["state"] for job_id in (first, second)]


def test_it_must_be_said_which(windlass: Windlass) -> None:
    """Neither nothing nor two ways at once is taken for all."""
    assert [2, 2, 2] == [
        windlass("dlq", "purge", "--yes").exit_code,
        windlass("dlq", "purge", ABSENT, "--queue", "a").exit_code,
        windlass("dlq", "retry", "--all", "--task", "a", "--yes").exit_code,
    ]
