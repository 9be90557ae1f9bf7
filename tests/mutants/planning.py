"""Guards of what people do to schedules: against each other, against firing, and against what goes meanwhile."""

from __future__ import annotations

from tests.mutants.mutant import Edit, Mutant, both, races, sql

EDITS = "tests/queue/test_schedule_edits.py::test_"
SCHEDULES = "tests/queue/test_schedules.py::test_"
TENANTS = "tests/queue/test_tenants.py::test_"

MUTANTS = (
    Mutant(
        "schedule-of-another-tenant",
        (
            *both(
                "schedulewrites",
                "lock_schedules",
                "AND tenant = :tenant",
                "AND CAST(:tenant AS text) IS NOT NULL",
                sqlite="WHERE s.tenant = :tenant",
            ),
            *both("schedulewrites", "schedules_now", "AND s.tenant = :tenant", "AND CAST(:tenant AS text) IS NOT NULL"),
        ),
        tuple(
            f"{EDITS}rel_i18_a_foreign_schedule_cannot_be_touched[{kind}-{act}]"
            for kind in ("sqlite", "postgres")
            for act in ("edit", "pause", "resume", "delete")
        ),
        "I18: a schedule of another tenant is not there",
    ),
    Mutant(
        "schedule-found-by-another-tenant",
        (sql("schedules", "get_by_id", "AND s.tenant = :tenant", "AND CAST(:tenant AS text) IS NOT NULL", count=2),),
        (f"{SCHEDULES}a_foreign_schedule_is_not_there",),
        "I18: a schedule of another tenant is not there",
    ),
    Mutant(
        "schedule-changed-while-it-fires",
        (Edit("queue/schedulewrites.py", "    await transaction.fetch(SQL.lock_next, ids=locked)\n", ""),),
        races("schedules::an_edit_of_other_settings_loses_no_slot"),
        "T3: a slot fires before an act or after it",
        only="postgres",
    ),
    Mutant(
        "schedule-edited-at-another-version",
        (Edit("queue/scheduledits.py", "if version not in (None, was.version):", "if version == 0:"),),
        races("schedules::of_two_edits_of_one_version_one_is_refused"),
        "rule 1: compare and set",
    ),
    Mutant(
        "schedule-of-a-tenant-that-goes",
        (sql("schedulewrites", "lock_tenants", " FOR KEY SHARE", "", "postgres"),),
        races("schedules::a_schedule_keeps_its_tenant"),
        "P39: a tenant goes only when nothing is left",
        only="postgres",
    ),
    Mutant(
        "tenant-deleted-with-schedules",
        (
            sql(
                "tenants",
                "count_held",
                "FROM schedule s WHERE s.tenant = :tenant",
                "FROM schedule s WHERE false",
            ),
        ),
        (f"{TENANTS}a_tenant_with_schedules_stays",),
        "P39: a tenant goes only when nothing is left",
    ),
    Mutant(
        "run-by-hand-takes-a-slot",
        (Edit("queue/scheduledits.py", "if at.microsecond == 0:", "if at.microsecond < 0:"),),
        (f"{EDITS}a_job_by_hand_takes_no_slot",),
        "T4: a slot gets its job, whatever is run by hand",
    ),
    Mutant(
        "schedule-resumed-though-prolonged",
        (Edit("queue/scheduledits.py", " or not over:", ":"),),
        races("schedules::a_pause_that_is_prolonged_goes_on"),
        "X5: a pause lasts until its end",
        only="postgres",
    ),
    Mutant(
        "schedule-resumed-as-a-queue",
        (sql("control", "pauses_over", "AND kind <> 'schedule'", "", "both"),),
        (f"{EDITS}a_pause_that_has_an_end_is_resumed_then",),
        "X5: each pause is ended by who knows its kind",
    ),
    Mutant(
        "declared-over-a-rival",
        (Edit("queue/declared.py", "    if plan.touched != {", "    if not plan.touched and plan.touched != {"),),
        races("schedules::two_releases_at_once_leave_what_one_of_them_says"),
        "T6: a declaration holds whole",
        only="postgres",
    ),
    Mutant(
        "declared-as-it-was-computed",
        (Edit("queue/declared.py", " or changes[found].was != now_is[found]]", "]"),),
        ("tests/queue/test_schedule_declared.py::test_what_moves_between_the_look_and_the_lock_is_computed_again",),
        "T6: what is written follows from what is locked",
    ),
    Mutant(
        "replaced-as-it-was-computed",
        (Edit("queue/schedules.py", "if change is None or change.was != was:", "if change is None:"),),
        ("tests/queue/test_schedules.py::test_what_moves_between_the_look_and_the_lock_is_computed_again",),
        "T6: what is written follows from what is locked",
    ),
    Mutant(
        "declared-over-a-pause-by-people",
        (Edit("queue/declared.py", ' and row["pause_reason"] != BY_DECLARATION', ' and not row["name"]'),),
        ("tests/queue/test_schedule_declared.py::test_a_pause_by_people_stays_over_a_declaration",),
        "T6: what people paused stays paused",
    ),
    Mutant(
        "declared-without-what-is-kept",
        (Edit("queue/declared.py", ' if row["name"] not in keep and ', " if "),),
        ("tests/server/test_schedules_acts.py::test_what_an_application_keeps_is_not_removed",),
        "T6: a declaration that is refused removes nothing",
    ),
    Mutant(
        "slot-lost-while-its-jitter-runs",
        (Edit("queue/cursor.py", "min(since, now), stands.last_at", "now, stands.last_at"),),
        ("tests/queue/test_schedule_series.py::test_a_slot_whose_jitter_runs_survives_an_edit",),
        "T4: a slot gets its job, whatever is edited",
    ),
    Mutant(
        "schedule-that-never-fires",
        (Edit("queue/cursor.py", "    if trigger is None:\n        return\n", "    return\n"),),
        ("tests/queue/test_schedule_never.py::test_what_never_fires_is_not_stored",),
        "T1: what never fires is refused",
    ),
    Mutant(
        "schedule-for-another-queue",
        (Edit("queue/schedulewrites.py", "and not reach.holds(schedule):", "and not schedule.queue:"),),
        (
            "tests/queue/test_schedule_queues.py::test_a_name_for_another_queue_is_not_taken_over",
            "tests/queue/test_schedule_queues.py::test_an_act_on_a_schedule_for_another_queue_is_refused",
        ),
        "I18: a key kept to some queues touches nothing of others",
    ),
    Mutant(
        "backfill-of-a-schedule-that-goes",
        (sql("backfills", "start", " FOR SHARE OF s", "", "postgres"),),
        races("schedules::a_backfill_goes_with_its_schedule"),
        "M4: what is of a schedule goes with it",
        only="postgres",
    ),
)
