"""Guards of schedules over HTTP: whose they are, what is refused before it is stored, what a key names."""

from __future__ import annotations

from tests.mutants.mutant import Edit, Mutant

SCHEDULES = "tests/server/test_schedules.py::test_"
ACTS = "tests/server/test_schedules_acts.py::test_"
DECLARED = "tests/server/test_declared.py::test_"
JOBS = "tests/server/test_recurring.py::test_"
PURE = "tests/engine/test_planned.py::test_"
ASKED = "tests/engine/test_recurring.py::test_"
LISTS = "tests/queue/test_recurring.py::test_"

COMPUTING = "tests/engine/test_computing.py::test_rel_t9_"
DEEP = "tests/server/test_thinking.py::test_a_payload_that_is_nested_too_deep_is_refused"
THINKING = "tests/server/test_thinking.py::test_rel_t9_"

MUTANTS = (
    Mutant(
        "times-without-a-budget",
        (Edit("engine/computing.py", "if self._spent_s >= limit_s:", "if self._spent_s < 0:"),),
        (f"{COMPUTING}a_request_over_its_budget_is_refused_with_the_item",),
        "T9: a request computes for a bounded time",
    ),
    Mutant(
        "payloads-count-as-times",
        (Edit("engine/computing.py", "math.inf if not counted else ", ""),),
        (
            f"{COMPUTING}what_does_not_count_takes_turns_all_the_same",
            "tests/server/test_thinking.py::test_payloads_use_up_no_time_of_triggers[/schedules/batch-sqlite]",
        ),
        "only the computing of times counts for the budget of times",
    ),
    Mutant(
        "payloads-of-dry-runs-not-looked-at",
        (Edit("server/accepted.py", "                raise problem\n", "                pass\n"),),
        (f"{DEEP}[True-POST-/schedules-payload-sqlite]",),
        "what a dry run accepts can be stored",
    ),
    Mutant(
        "times-without-turns",
        (Edit("engine/computing.py", ".turn(self._tenant, self._key)", '.turn("", None)'),),
        (f"{COMPUTING}a_tenant_with_much_to_compute_delays_another_by_one_piece",),
        "T9: tenants take turns in the thread for times",
    ),
    Mutant(
        "times-for-a-caller-that-left",
        (
            Edit(
                "server/thinking.py",
                "await call.while_connected(",
                "await (",
                count=2,
            ),
        ),
        (f"{THINKING}work_ends_when_its_caller_leaves[sqlite]",),
        "T9: nothing is computed for a caller that has left",
    ),
    Mutant(
        "declares-for-other-applications",
        (Edit("server/enabling.py", " and principal.name != owner:", " and not principal.name:"),),
        (f"{DECLARED}rel_t4_a_workers_key_declares_for_the_application_that_it_is_named_after[sqlite]",),
        "T4: a worker's key declares for one application",
    ),
    Mutant(
        "pauses-by-declaring",
        (Edit("queue/declared.py", "    if not may_pause:\n", "    if not (may_pause or plan):\n"),),
        (f"{DECLARED}rel_t4_declaring_pauses_and_resumes_only_with_the_scope_for_it[sqlite]",),
        "T4: pausing needs operate by every route",
    ),
    Mutant(
        "dry-run-names-what-nobody-may-read",
        (Edit("server/schedules.py", "if asked.dry_run and done.declared.removed:", "if not asked:"),),
        (f"{DECLARED}rel_t4_a_dry_run_names_what_it_would_remove_to_readers_only[sqlite]",),
        "T4: names are for readers",
    ),
    Mutant(
        "schedule-of-another-queue",
        (Edit("server/app.py", 'if route.bound in ("schedule", "job") and', 'if route.bound == "" and'),),
        (f"{ACTS}rel_t4_a_key_kept_to_queues_touches_no_other_schedules[sqlite]",),
        "N2: a key kept to queues touches no schedule of another",
    ),
    Mutant(
        "declares-away-foreign-queues",
        (
            Edit(
                "server/schedules.py",
                "dry_run=asked.dry_run,\n        reach=call.reach,\n",
                "dry_run=asked.dry_run,\n",
            ),
        ),
        (f"{ACTS}rel_t4_a_key_kept_to_queues_makes_schedules_for_its_own[sqlite]",),
        "N2: a declaration removes nothing of a queue that its key is not for",
    ),
    Mutant(
        "moved-to-another-queue",
        (Edit("server/accepted.py", "    call.allow_queue(queue)\n", "    pass\n"),),
        (f"{ACTS}rel_t4_a_key_kept_to_queues_makes_schedules_for_its_own[sqlite]",),
        "N2: nothing that is made or edited reaches a queue that its key is not for",
    ),
    Mutant(
        "reach-by-the-queue-of-the-settings",
        (
            Edit(
                "server/call.py",
                "Reach(queues, self.engine.signatures.queue_of)",
                "Reach(queues)",
            ),
        ),
        (f"{ACTS}rel_t4_a_schedule_that_leaves_its_queue_open_is_for_keys_of_the_queue_of_its_task[sqlite]",),
        "N2: a key kept to queues runs nothing whose queue another decides",
    ),
    Mutant(
        "never-fires-is-stored",
        (Edit("server/accepted.py", "        planned.check_fires(schedule, now=now)\n", "        pass\n"),),
        (
            SCHEDULES + "bad_input_names_the_place_and_stores_nothing"
            "[{'end': '2020-01-01T00:00:00Z'}-invalid_schedule-end-sqlite]",
        ),
        "a schedule without a slot left is refused",
    ),
    Mutant(
        "dry-run-is-audited",
        (Edit("server/schedules.py", "    call.acted = False\n", ""),),
        (f"{ACTS}rel_t5_acts_on_schedules_are_audited[sqlite]",),
        "X10: what was only looked at is no act",
    ),
    Mutant(
        "name-like-an-id",
        (Edit("engine/planned.py", "        UUID(schedule.name)\n", "        UUID(schedule.name + schedule.name)\n"),),
        (f"{PURE}a_value_out_of_its_range_names_its_field[fields5-name]",),
        "a name in a path is never taken for an id",
    ),
    Mutant(
        "key-of-another-request",
        (Edit("engine/recurring.py", "    if (asked_id.int ^ stored_id.int) & MARK:\n", "    if asked_id is None:\n"),),
        (f"{ASKED}another_request_under_the_same_key_is_refused",),
        "S6: the same key with other content is refused",
    ),
    Mutant(
        "list-past-its-floor",
        (Edit("queue/recurring.py", "floor = max(floors, default=UUID(int=0))", "floor = UUID(int=0)"),),
        (f"{LISTS}a_page_ends_where_a_bounded_look_ends[sqlite]",),
        "S8: a page ends where one of its two lists has not been read",
    ),
    Mutant(
        "foreign-schedules-listed",
        (Edit("queue/recurring.sql", "WHERE x.tenant = :tenant AND x.id", "WHERE :tenant = :tenant AND x.id"),),
        (f"{JOBS}rel_t6_a_foreign_one_is_like_none[sqlite]",),
        "N1: lists hold the schedules of one's own tenant",
    ),
)
