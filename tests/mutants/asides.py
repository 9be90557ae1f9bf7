"""Guards of what goes on beside firing: a slot has one job, a missing run is told once, and each sees its own."""

from __future__ import annotations

from tests.mutants.mutant import Edit, Mutant, both, sql

RACES = "tests/queue/races/test_asides.py::test_rel_b3_"
BACKFILLS = "tests/queue/test_backfills.py::test_"
WATCHES = "tests/queue/test_watches.py::test_"
RUNS = "tests/queue/test_runs.py::test_"

STRETCHES = "tests/queue/test_stretches.py::test_"

MUTANTS = (
    Mutant(
        "backfill-past-retention",
        (Edit("queue/backfills.py", "if keep_days and since <", "if not keep_days and since <"),),
        (f"{BACKFILLS}what_is_past_retention_is_not_run_twice",),
        "T4: what has run is known no more",
    ),
    Mutant(
        "backfill-forgets-what-has-run",
        (
            Edit("queue/retention.py", 'keep={"schedule_runs": behind["slot_at"]}', "keep={}"),
            sql("retention", "forget_runs", "SELECT min(cursor_at)", "SELECT max(until_at)", "sqlite"),
        ),
        (f"{BACKFILLS}slots_stay_known_until_a_backfill_has_come_to_them",),
        "T4: a slot stays known until the backfill has come to it",
    ),
    Mutant(
        "backfill-counts-a-slot-twice",
        (Edit("queue/stretches.py", "left_count = slot_count - len(inside)", "left_count = slot_count"),),
        (f"{STRETCHES}a_stretch_that_a_rival_has_changed_is_left_to_the_next_step",),
        "T14: a slot is counted once",
    ),
    Mutant(
        "stretch-narrowed-by-two",
        (
            sql(
                "stretches",
                "narrow",
                "first_at = :first_at AND slot_count = :slot_count",
                "(first_at = :first_at OR slot_count = :slot_count OR true)",
            ),
        ),
        (f"{STRETCHES}a_stretch_that_a_rival_has_changed_is_left_to_the_next_step",),
        "T14: of two who narrow a stretch one does",
    ),
    Mutant(
        "backfill-moved-on-by-two",
        (
            *both("backfills", "lock_backfill", "cursor_at = :cursor_at", "cursor_at >= :cursor_at"),
            sql("backfills", "go_on", "AND cursor_at = :cursor_at", "AND cursor_at >= :cursor_at"),
        ),
        (f"{RACES}two_who_move_one_backfill_on",),
        "T13: of two servers one moves a backfill on",
    ),
    Mutant(
        "backfill-goes-on-after-its-stop",
        both("backfills", "lock_backfill", "state + 0 = 0 AND ", "", sqlite="state = 0 AND "),
        (f"{RACES}a_backfill_beside_its_stop",),
        "T13: after the stop nothing is made",
    ),
    Mutant(
        "backfill-runs-a-slot-again",
        (sql("backfills", "decide", "WHERE r.job_id IS NULL", "WHERE true"),),
        (f"{RACES}a_backfill_beside_firing",),
        "T4: one job for a slot",
    ),
    Mutant(
        "backfill-makes-more-than-allowed",
        (Edit("queue/backfills.py", 'room = backfill.concurrency - jobs["live"]', "room = backfill.concurrency"),),
        (f"{BACKFILLS}so_many_jobs_live_at_a_time",),
        "T13: its own concurrency",
    ),
    Mutant(
        "backfill-by-an-old-definition",
        (
            Edit(
                "queue/backfills.py",
                'if not locked or locked[0]["version"] != found[0]["version"]:',
                "if locked is None:",
            ),
        ),
        (f"{RACES}a_backfill_beside_an_edit",),
        "T6: jobs are of the schedule as it is",
    ),
    Mutant(
        "backfill-beside-an-open-edit",
        (sql("backfills", "lock_schedule", " FOR SHARE", "", "postgres"),),
        (f"{RACES}a_backfill_beside_an_edit", f"{RACES}a_backfill_beside_the_end_of_its_schedule"),
        "T6, T13: an edit or a delete that is not committed is waited for",
        only="postgres",
    ),
    Mutant(
        "backfill-of-late-jobs",
        (Edit("queue/backfills.py", "run_at=None, start_by=None", "start_by=None"),),
        (f"{BACKFILLS}jobs_of_a_backfill_are_late_for_nobody",),
        "Q3: a backfill does not count as late",
    ),
    Mutant(
        "backfill-stopped-leaves-its-jobs",
        (Edit("queue/backfills.py", "actor) if stopped else []", "actor) if not stopped else []"),),
        (f"{BACKFILLS}a_stopped_backfill_cancels_what_has_not_begun",),
        "T13: jobs that have not begun are cancelled",
    ),
    Mutant(
        "backfill-shown-to-others",
        (sql("backfills", "get", "AND tenant = :tenant", "AND :tenant <> ''"),),
        (f"{BACKFILLS}a_schedule_shows_its_backfills_newest_first",),
        "N1: another tenant's backfill is like one that never was",
    ),
    Mutant(
        "missing-run-told-by-two",
        (
            sql(
                "watches",
                "go_on",
                "w.slot_at = i.slot_at AND w.due_at + interval '0' = i.due_at",
                "i.slot_at < i.due_at",
                "postgres",
            ),
            sql(
                "watches",
                "go_on",
                "schedule_watch.slot_at = i.slot_at AND schedule_watch.due_at = i.due_at",
                "i.slot_at < i.due_at",
                "sqlite",
            ),
        ),
        (f"{RACES}two_who_look_at_one_missing_run",),
        "T14: a slot is told once",
    ),
    Mutant(
        "missing-run-told-at-every-look",
        (Edit("queue/watches.py", "if not self.succeeded and self.told_before:", 'if self.found == "":'),),
        (f"{WATCHES}a_run_that_nobody_fired_is_told_once",),
        "T14: a slot is told once",
    ),
    Mutant(
        "missing-runs-told-one-by-one",
        (Edit("queue/watches.py", "or following[1] > self._now:", "or following[1] > slot_at:"),),
        (f"{WATCHES}after_a_time_nobody_looked_the_newest_slot_is_told",),
        "T14: after an outage one telling",
    ),
    Mutant(
        "runs-shown-to-others",
        (sql("runs", "is_schedule", "AND tenant = :tenant", "AND :tenant <> ''"),),
        (f"{RUNS}another_tenants_schedule_has_no_slots",),
        "N1: another tenant's schedule is like one that never was",
    ),
)
