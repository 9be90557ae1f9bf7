"""Guards of what attempts leave behind: who may tell, what is kept once, what the next attempt is brought."""

from __future__ import annotations

from tests.mutants.mutant import Edit, Mutant, both, sql

CHECKPOINTS = "tests/queue/test_checkpoints.py::test_"
LOGS = "tests/queue/test_logs.py::test_"
LOST = "tests/queue/test_lost_sessions.py::test_"


def _of_both(name: str) -> tuple[str, ...]:
    """Return a test on both databases."""
    return tuple(name.replace("[*", f"[{kind}") for kind in ("sqlite", "postgres"))


MUTANTS = (
    Mutant(
        "note-of-any-fence",
        both("checkpoints", "keep", "q.fence = i.fence AND", ""),
        _of_both(f"{CHECKPOINTS}only_the_holder_of_the_lease_is_heard[*-fence]"),
        "R3: a stale word changes nothing",
    ),
    Mutant(
        "note-of-any-worker",
        both("checkpoints", "keep", "s.worker = i.worker AND", ""),
        _of_both(f"{CHECKPOINTS}only_the_holder_of_the_lease_is_heard[*-worker]"),
        "T7: only the holder speaks of a lease",
    ),
    Mutant(
        "note-of-any-tenant",
        both("checkpoints", "keep", "AND s.tenant = i.tenant", ""),
        _of_both(f"{CHECKPOINTS}only_the_holder_of_the_lease_is_heard[*-tenant]"),
        "N1: another tenant's leases are unknown",
    ),
    Mutant(
        "released-without-its-mark",
        both("moves", "lease_to_ready", "THEN 32 ELSE 0", "THEN 0 ELSE 0"),
        _of_both(f"{CHECKPOINTS}the_mark_survives_every_way_back[*-release]"),
        "W11: the next attempt goes on from the checkpoint",
    ),
    Mutant(
        "put-off-without-its-mark",
        both("moves", "lease_to_timer", "THEN 32 ELSE 0", "THEN 0 ELSE 0"),
        _of_both(f"{CHECKPOINTS}the_mark_survives_every_way_back[*-fail]"),
        "W11: the next attempt goes on from the checkpoint",
    ),
    Mutant(
        "lines-of-any-fence",
        (
            *both("logs", "lock_writers", "q.fence = i.fence AND", ""),
            sql("logs", "keep", "= c.job_id AND q.fence = c.fence", "= c.job_id", "postgres"),
        ),
        _of_both(f"{LOGS}only_the_holder_of_the_lease_writes[*-fence]"),
        "Y4: only the holder of a lease writes its log",
    ),
    Mutant(
        "lines-kept-twice",
        (
            sql("logs", "keep", "LIMIT 1) IS NULL", "LIMIT 0) IS NULL", "postgres"),
            sql("logs", "keep", "NOT EXISTS (SELECT", "1 = 1 OR EXISTS (SELECT", "sqlite"),
        ),
        _of_both(f"{LOGS}the_same_chunk_twice_is_kept_once[*]"),
        "Y4: the same chunk said twice is kept once",
    ),
    Mutant(
        "lines-without-bound",
        (Edit("queue/logs.py", "most=MAX_BYTES", "most=10**12"),),
        _of_both(f"{LOGS}an_attempt_writes_no_more_than_its_bound[*]"),
        "Y4: the log of an attempt is bounded",
    ),
    Mutant(
        "a-death-costs-nothing",
        (Edit("queue/workers.py", "if lease.started_at is None else moves.lose(", "if lease else moves.lose("),),
        _of_both(f"{LOST}what_had_begun_is_lost_and_the_rest_goes_back[*]"),
        "L10: what a dead process had begun is lost",
    ),
    Mutant(
        "lines-of-the-time-of-a-look-are-missed",
        (
            Edit(
                "server/logs.py",
                "            await _next_look(grown)\n            await",
                "            grown.clear()\n            await _next_look(grown)\n            await",
            ),
        ),
        ("tests/server/test_logs.py::test_a_stream_hears_lines_that_come_while_it_looks[sqlite]",),
        "what is kept while a stream looks is told at once",
    ),
)
