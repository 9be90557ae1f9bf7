"""Guards of firing: each slot once, its job and its cursor together, an edit or pause never undone."""

from __future__ import annotations

from tests.mutants.mutant import Edit, Mutant, both, sql

RACES = "tests/queue/races/test_firing.py::test_"
QUEUE = "tests/queue/test_firing.py::test_"
OVERLAP = "tests/queue/test_firing_overlap.py::test_"
TROUBLED = "tests/queue/test_firing_troubled.py::test_"
PURE = "tests/pure/test_slots.py::test_"
DUTIES = "tests/engine/test_firing.py::test_"
SCHEMA = "db/migrations/0001_first.sql"

MUTANTS = (
    Mutant(
        "a-look-without-an-end",
        (Edit("queue/plans.py", "cpu_s() - begun_s >= look_s * share", "cpu_s() < 0"),),
        (f"{TROUBLED}rel_t9_a_tenant_whose_schedules_take_long_delays_its_own",),
        "T9: what a look computes is bounded",
    ),
    Mutant(
        "fire-one-tenant-after-the-other",
        (Edit("queue/plans.py", "for row in in_turns(part):", "for row in part:"),),
        (f"{TROUBLED}rel_t9_a_tenant_whose_schedules_take_long_delays_its_own",),
        "T9: tenants take turns in a look",
    ),
    Mutant(
        "a-look-back-that-looks-ahead",
        (
            Edit(
                "queue/cron/series.py",
                "slot = self._next(empty_from - span, until=instant)",
                "slot = self._next(empty_from - span)",
            ),
        ),
        ("tests/pure/test_cron_far.py::test_a_look_back_does_not_look_ahead",),
        "T9: a look back is short",
    ),
    Mutant(
        "fire-cursor-and-job-apart",
        (Edit("queue/firing.py", "await transaction.fetch(SQL.advance", "await db.fetch(SQL.advance"),),
        (f"{RACES}rel_m10_a_cursor_that_moved_has_its_job",),
        "M10, rule 10: the cursor and the job in one transaction",
        only="postgres",
    ),
    Mutant(
        "fire-without-a-key-of-slots",
        (Edit(SCHEMA, "reason text, PRIMARY KEY (schedule_id, slot_at)", "reason text"),),
        (f"{QUEUE}a_slot_that_was_backfilled_makes_no_second_job",),
        "M11, T4: one row for each slot",
    ),
    Mutant(
        "fire-whatever-was-edited",
        both(
            "firing",
            "advance",
            "n.version = i.version AND ",
            "",
            sqlite="schedule_next.version = i.version AND ",
        ),
        (f"{RACES}rel_x17_fire_beside_an_edit_that_keeps_the_times",),
        "X17: what was edited since it was read does not fire",
    ),
    Mutant(
        "fire-what-did-not-move",
        (Edit("queue/firing.py", "if plan.id in moved]", "if moved is not None]"),),
        (f"{RACES}rel_x17_fire_beside_delete",),
        "T3: jobs only for cursors that moved",
    ),
    Mutant(
        "fire-waits-for-locked-rows",
        (sql("firing", "advance", "FOR UPDATE OF n SKIP LOCKED", "FOR UPDATE OF n", "postgres"),),
        (f"{RACES}rel_x17_a_holder_stopped_in_its_transaction_holds_up_only_its_own",),
        "X17: a stopped holder holds up only what it has locked",
        only="postgres",
    ),
    Mutant(
        "fire-again-what-was-set-back",
        (Edit("queue/plans.py", 'first_at <= row["last_at"]', 'first_at < row["base_at"]'),),
        (f"{RACES}rel_k10_the_last_slot_only_rises",),
        "K10: the cursor goes forward only",
    ),
    Mutant(
        "follow-lets-two-go",
        both(
            "following",
            "lock_behind",
            "n.live_job_id IS NOT DISTINCT FROM i.live_job_id AND ",
            "",
            sqlite="n.live_job_id IS i.live_job_id AND ",
        ),
        (f"{RACES}a_waiting_job_is_let_go_once",),
        "T8: one of those that wait goes",
    ),
    Mutant(
        "follow-while-the-run-before-goes-on",
        (Edit("queue/following.py", ' and locked[row["schedule_id"]]["live"] is None', ""),),
        (f"{OVERLAP}nobody_goes_in_place_of_a_cancelled_job_while_the_run_before_goes_on",),
        "T8: nobody goes before the run before is over",
    ),
    Mutant(
        "follow-in-the-order-of-ids",
        (
            sql("following", "waits", "ORDER BY x.slot_at", "ORDER BY x.job_id", "postgres"),
            sql(
                "following", "waits", "ORDER BY w.schedule_id, w.slot_at", "ORDER BY w.schedule_id, w.job_id", "sqlite"
            ),
        ),
        (f"{OVERLAP}rel_e4_waiting_jobs_keep_their_order_when_the_clocks_of_servers_differ",),
        "E4: no clock of a server decides",
    ),
    Mutant(
        "overlap-forgets-who-waits",
        (Edit("queue/slots.py", "previous.live or previous.waiting_count > 0", "previous.live"),),
        (f"{OVERLAP}a_slot_waits_behind_those_that_wait_also_when_the_run_before_is_just_over",),
        "T8: nobody overtakes",
    ),
    Mutant(
        "allow-takes-the-place-of-the-run-waited-for",
        (
            Edit(
                "queue/plans.py",
                'self.row["waiting_count"] and self.decided.waiting_count',
                'self.row["waiting_count"] < 0',
            ),
        ),
        (f"{OVERLAP}jobs_that_wait_are_let_go_also_under_allow",),
        "T8: who waits is let go, whatever the policy has become",
    ),
    Mutant(
        "fire-stops-for-one-that-the-database-refuses",
        (Edit("queue/firing.py", "if len(plans) == 1:", "if len(plans) >= 1:"),),
        (f"{TROUBLED}one_that_the_database_refuses_is_found_and_left_out",),
        "T3: one that cannot be fired keeps no other waiting",
    ),
    Mutant(
        "latest-beside-the-grace",
        (Edit("queue/slots.py", 'policy.catch_up == "latest" and inside_at is None', 'policy.catch_up == "latest"'),),
        (f"{PURE}latest_runs_no_missed_slot_beside_one_inside_the_grace",),
        "T7: one job for all that was missed",
    ),
    Mutant(
        "fire-for-a-lease-that-is-over",
        (
            Edit(
                "engine/trusted.py",
                "checks = [self._check, *(other._check for other in others)]",
                "checks = [self._check]",
            ),
        ),
        (f"{DUTIES}rel_b3_what_is_under_way_for_a_lost_shard_is_not_committed",),
        "B3, I14: nothing is written under a term that is over",
    ),
)
