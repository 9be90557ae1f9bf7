"""Guards of what the job's row relies on: spans, ids, the marks of leases, and who looks whether a job lives."""

from __future__ import annotations

from tests.mutants.mutant import Edit, Mutant, both, races, sql

SPANS, OUTBOX = "tests/queue/test_spans.py::test_", "tests/queue/test_outbox.py::test_"
OUTLIVES = f"{SPANS}a_job_that_is_needed_outlives_its_span"
LATELY = f"{SPANS}a_job_that_ended_lately_outlives_its_span"
STAYS = f"{SPANS}a_span_with_very_many_stragglers_stays"
MOVED = '("queue", "timer", "dead", "done")'
SPREAD = "tests/queue/test_claim.py::test_of_several_lanes_the_best_are_taken_however_they_are_spread"
RETENTION = "M27: what is needed outlives its span"

MUTANTS = (
    *(
        Mutant(
            f"span-dropped-with-its-{place}",
            (Edit("db/spans.py", MOVED, MOVED.replace(f', "{place}"', "")),),
            (test,),
            RETENTION,
            only="postgres",
        )
        for place, test in (("timer", f"{OUTLIVES}[timed]"), ("dead", f"{OUTLIVES}[dead]"), ("done", LATELY))
    ),
    Mutant(
        "span-dropped-with-what-waits",
        (Edit("db/spans.py", MOVED, '("timer", "dead", "done")'),),
        (f"{OUTLIVES}[waiting]",),
        RETENTION,
        only="postgres",
    ),
    Mutant(
        "span-dropped-by-an-old-look",
        (Edit("db/spans.py", "await _check_unchanged(transaction, into, span)", "await _spans(transaction)", count=2),),
        races("spans::rel_x23_a_span_dropped_by_two"),
        "X23: two servers may drop the same span",
        only="postgres",
    ),
    Mutant(
        "spans-made-without-lock",
        (Edit("db/spans.py", "await transaction.fetch(SQL.lock_spans)\n            *_", "*_"),),
        races("spans::rel_x23_spans_made_by_two"),
        "X23: two servers may make the same span",
        only="postgres",
    ),
    Mutant(
        "span-grows-by-a-gap",
        (Edit("db/spans.py", "length = min(", "length = max("),),
        (f"{SPANS}a_database_that_slept_for_long_gets_one_span_for_it",),
        "a gap makes one span, not long ones",
        only="postgres",
    ),
    *(
        Mutant(
            f"span-moved-however-{named}",
            (Edit("db/spans.py", old, new),),
            (f"{STAYS}[{test}]",),
            "M27: nobody waits while very much is moved",
            only="postgres",
        )
        for named, old, new, test in (
            ("many", 'found["jobs"] > MOST_STRAGGLERS or ', "", "MOST_STRAGGLERS-3"),
            ("long", ' or found["bytes"] > MOST_BYTES', "", "MOST_BYTES-20"),
        )
    ),
    *(
        Mutant(
            f"job-forgotten-in-{table}",
            (
                sql(
                    "retention",
                    "forget_jobs",
                    f"NOT EXISTS (SELECT 1 FROM {table} {alias} WHERE {alias}.id = ANY(ARRAY[s.id]))",
                    "true",
                    "postgres",
                ),
            ),
            (test,),
            "M27: what has a place or an end is kept",
            only="postgres",
        )
        for table, alias, test in (
            ("queue", "q", f"{OUTLIVES}[waiting]"),
            ("timer", "t", f"{OUTLIVES}[timed]"),
            ("dead", "d", f"{OUTLIVES}[dead]"),
            ("done", "d", LATELY),
        )
    ),
    Mutant(
        "ids-stay-where-a-clock-once-was",
        (Edit("ids.py", " or ms < self._last_ms - _BACK_MS", ""),),
        ("tests/pure/test_ids.py::test_ids_follow_a_clock_that_is_set_right",),
        "a clock that was wrong for a moment puts no later job elsewhere",
    ),
    Mutant(
        "ids-by-the-servers-clock",
        (
            Edit("engine/engine.py", "Ids(db.now)", "Ids(system_clock)"),
            Edit("engine/engine.py", "import msgspec\n", "import msgspec\nfrom windlass.clock import system_clock\n"),
        ),
        (f"{SPANS}a_server_whose_clock_is_a_year_off",),
        "a server whose clock is wrong loses nothing",
        only="postgres",
    ),
    Mutant(
        "outbox-takes-any-uuid",
        (Edit("queue/outbox.py", 'read.kind == "enqueue" and read.id.version != 7', 'read.kind == "nothing"'),),
        (f"{OUTBOX}an_id_that_no_job_can_have_is_set_aside[sqlite-no UUIDv7]",),
        "S11: jobs are ordered by the time of their ids",
    ),
    Mutant(
        "outbox-takes-any-time",
        (Edit("queue/outbox.py", "if span > FAR or job_id in beyond", "if job_id in beyond"),),
        (f"{OUTBOX}an_id_that_no_job_can_have_is_set_aside[sqlite-a year ahead]",),
        "S11: no job is of a time far ahead",
        only="sqlite",
    ),
    Mutant(
        "outbox-stops-at-a-missing-span",
        (Edit("queue/outbox.py", "if span > FAR or job_id in beyond", "if span > FAR"),),
        (f"{OUTBOX}an_id_for_which_there_is_no_partition_yet_waits_aside",),
        "S11: one row keeps no other waiting",
        only="postgres",
    ),
    Mutant(
        "claim-takes-what-lies-behind",
        both("claim", "claim", " AND h.beyond = 0", "", sqlite=" AND b.beyond = 0"),
        tuple(f"{SPREAD}[{kind}-30]" for kind in ("sqlite", "postgres")),
        "S4: nothing is taken before a better job",
    ),
    Mutant(
        "claim-forgets-its-first-look",
        (Edit("queue/claim.py", "if jobs and db.capabilities.commits:\n", "if not jobs:\n"),),
        races("claims::jobs_of_a_first_look_are_handed_out_or_ready_again[*-rival]"),
        "I22: no lease of which nobody was told",
    ),
    Mutant(
        "claim-cut-off-keeps-its-leases",
        (Edit("queue/claim.py", "await undo(db, jobs)\n        raise", "pass\n        raise"),),
        races("claims::jobs_of_a_first_look_are_handed_out_or_ready_again[*-cancelled]"),
        "I22: no lease of which nobody was told",
    ),
    Mutant(
        "limit-counts-marked-leases-only",
        (
            Edit(
                "queue/limits.py",
                'SQL.count_running if limit["counted"] == _ALL_MARKED else SQL.count_leased',
                "SQL.count_running",
            ),
        ),
        races("limits::rel_x6_a_limit_switched_on_beside_claims"),
        "I15: what ran before a limit is counted",
    ),
    Mutant(
        "limit-marks-nothing",
        (
            Edit("queue/limits.py", "            await transaction.fetch(SQL.mark_leases, queue=queue)\n", ""),
            sql(
                "limits",
                "all_marked",
                "AND NOT EXISTS (SELECT 1 FROM queue q WHERE q.place = 1 AND q.flags & 256 = 0",
                "AND NOT EXISTS (SELECT 1 FROM queue q WHERE q.place = 9",
                "both",
            ),
        ),
        races("limits::rel_x6_a_limit_switched_on_beside_claims"),
        "I15: what ran before a limit is counted",
    ),
    Mutant(
        "limit-comes-back",
        (
            sql("limits", "all_marked", "lane.limited = 2 AND ", "", "both"),
            sql("limits", "lock_queue", "WHEN limited = 2 AND limited_at", "WHEN limited_at", "postgres"),
            sql("limits", "lock_queue", "WHEN limited = 2 AND limited_at", "WHEN limited_at", "sqlite"),
        ),
        races("limits::rel_x6_a_limit_switched_off_beside_a_claim"),
        "I15: a limit that was taken off stays off",
    ),
    Mutant(
        "claim-marks-no-lease",
        (
            sql("claim", "claim", "ELSE q.flags | 256 END", "ELSE q.flags END", "postgres"),
            sql("claim", "claim", "ELSE flags | 256 END", "ELSE flags END", "sqlite"),
        ),
        races("limits::rel_x6_a_limit_switched_on_beside_claims"),
        "I15: the leases of a limited queue are marked",
    ),
    Mutant(
        "check-passes-a-gap",
        (
            sql(
                "check",
                "partitions",
                "WHERE s.since_id IS NOT NULL AND NOT",
                "WHERE s.since_id IS NULL AND NOT",
                "postgres",
            ),
        ),
        (f"{SPANS}a_gap_between_spans_is_told",),
        "check: jobs of any time can be stored",
        only="postgres",
    ),
)
