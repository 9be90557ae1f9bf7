"""Guards of what applications say in transactions of their own: one job for a row, one end for a lease."""

from __future__ import annotations

from tests.mutants.mutant import Edit, Mutant, both, sql

RACES = "tests/queue/races/test_outbox.py::test_rel_"
QUEUE = "tests/queue/test_outbox.py::test_"
FUNCTION = "tests/queue/test_outbox_function.py::test_"
SCHEMA = "db/migrations/0001_first.sql"

MUTANTS = (
    Mutant(
        "relay-stores-what-a-rival-has",
        (Edit("queue/submit.py", "if ids.issuperset(job.id for job in jobs)}", "if ids is not None}"),),
        (f"{RACES}s11_relay_beside_a_relay_whose_job_ends",),
        "S11: one row is one job",
        only="postgres",
    ),
    Mutant(
        "relay-forgets-what-was-a-job",
        (Edit("queue/outbox.py", "return taken - {", "return taken or {"),),
        (f"{QUEUE}a_row_whose_id_was_a_job_before_is_done_once",),
        "S11: the row's id names its work",
    ),
    Mutant(
        "relay-tries-again-what-was-set-aside",
        both("outbox", "waiting", "error IS NULL AND", ""),
        (f"{QUEUE}a_row_that_cannot_be_a_job_is_set_aside",),
        "S11: a row that can never be done is not tried for ever",
    ),
    Mutant(
        "finish-of-any-fence",
        (Edit(SCHEMA, "AND q.fence = finish.fence AND q.place = 1", "AND q.place = 1"),),
        (f"{FUNCTION}a_finish_without_its_lease_is_refused[other fence]",),
        "R13: only the holder of the lease finishes the job",
        only="postgres",
    ),
    Mutant(
        "finish-of-what-is-not-leased",
        (Edit(SCHEMA, "AND q.fence = finish.fence AND q.place = 1", "AND q.fence = finish.fence"),),
        (f"{RACES}r13_finish_beside_rescue", f"{RACES}r13_finish_beside_itself"),
        "R13: a lease that is over cannot be finished",
        only="postgres",
    ),
    Mutant(
        "finish-for-everybody",
        (Edit(SCHEMA, "REVOKE ALL ON FUNCTION", "GRANT ALL ON FUNCTION"), Edit(SCHEMA, "FROM PUBLIC;", "TO PUBLIC;")),
        (f"{FUNCTION}nobody_may_call_them_without_a_grant",),
        "S11: the grant is narrow",
        only="postgres",
    ),
    Mutant(
        "cancel-ends-finished-jobs",
        (
            sql("control", "cancel_queued", "q.session IS NULL", "q.place <> 1", "postgres"),
            sql("control", "cancel_queued", "queue.session IS NULL", "queue.place <> 1", "postgres"),
            sql("control", "cancel_queued", "q.session IS NULL", "q.place <> 1", "sqlite"),
        ),
        (f"{QUEUE}a_finished_job_cannot_be_cancelled", f"{RACES}r13_finish_beside_cancel"),
        "R13: after the commit a cancel comes too late",
    ),
    Mutant(
        "resume-runs-finished-jobs-again",
        (sql("control", "resume_queued", "place <> 3 OR session IS NOT NULL", "place <> 3"),),
        (f"{QUEUE}a_finished_job_cannot_be_cancelled",),
        "R13: after the commit nobody gets the job again",
    ),
    Mutant(
        "change-runs-finished-jobs-again",
        (
            sql("control", "find_waiting", "session IS NULL", "place <> 1"),
            *both("control", "lock_queued", "session IS NULL", "place <> 1"),
            *both("control", "drop_place", "session IS NULL", "place <> 1"),
        ),
        (f"{QUEUE}a_finished_job_cannot_be_cancelled",),
        "R13: after the commit nobody gets the job again",
    ),
    Mutant(
        "report-of-a-finished-attempt-is-stale",
        (Edit("queue/report.py", "and _is_finishing(item, holder)", "and False"),),
        (f"{QUEUE}the_report_of_a_finished_attempt_was_applied_already",),
        "R3, R13: the same outcome again gets the same answer",
    ),
    Mutant(
        "heartbeats-wait-for-an-application",
        (sql("workers", "start", "FOR UPDATE OF q SKIP LOCKED", "FOR UPDATE OF q", "postgres"),),
        (f"{RACES}r13_heartbeats_do_not_wait_for_an_open_finish",),
        "R13: an open transaction of an application holds up no heartbeat",
        only="postgres",
    ),
    Mutant(
        "relay-notified-by-applications",
        (Edit(SCHEMA, "    RETURN id;", "    PERFORM pg_notify('windlass_wake', '');\n    RETURN id;"),),
        ("tests/engine/test_relay.py::test_nobody_is_notified_by_an_application",),
        "no NOTIFY in an application's transaction: it lets all commits of the cluster wait for each other",
    ),
    Mutant(
        "relay-stops-at-a-row-that-cannot-be-read",
        (
            Edit(
                "queue/outbox.py",
                "except (ValueError, msgspec.ValidationError) as problem",
                "except OSError as problem",
            ),
        ),
        (f"{QUEUE}a_row_that_cannot_be_read_is_set_aside",),
        "S11: a row that can never be done keeps no other waiting",
    ),
    Mutant(
        "outbox-tells-other-tenants",
        (Edit("queue/outbox.py", "== tenant", '!= ""'),),
        ("tests/engine/test_relay.py::test_a_job_that_nobody_stores_is_tried_again_by_those_who_may_see_it",),
        "T5: what waits in the outbox is its tenant's",
    ),
    Mutant(
        "relay-asks-again-for-what-a-rival-has",
        (Edit("engine/relay.py", "if count and len(rows)", "if len(rows)"),),
        (f"{QUEUE}rows_that_a_rival_has_are_not_asked_for_without_a_pause",),
        "an idle relay does not spin",
    ),
)
