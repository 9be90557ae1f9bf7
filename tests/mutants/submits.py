"""Guards of taking in: keys, unknown commits, poison."""

from __future__ import annotations

from tests.mutants.mutant import Edit, Mutant, both, races, sql

KINDS = ("sqlite", "postgres")
UNIQUE_ENDS = {
    "complete": ("report", "complete"),
    "cancelled": ("moves", "lease_to_end"),
    "dead": ("moves", "lease_to_end"),
    "cancel_ready": ("control", "cancel_queued"),
    "cancel_timer": ("control", "cancel_timed"),
    "expire": ("deadlines", "expire"),
}

DEFAULTS = "tests/server/test_defaults.py::test_"
TASKS = "tests/engine/test_defaults.py::test_"
KEPT = "tests/queue/test_tasks.py::test_"
SIGNATURES = "tests/engine/test_signatures.py::test_"
KEPT_OF = "tests/server/test_tasks.py::test_rel_h4_more_signatures_than_are_kept_are_refused_for_good"
BAD_INPUT = "tests/queue/test_bad_input.py::test_"

MUTANTS = (
    Mutant(
        "key-compares-what-was-left-open",
        (Edit("queue/newjob.py", '"defaults", *open_ones):', '"defaults"):'),),
        (f"{DEFAULTS}a_repeated_request_is_the_same_though_the_task_has_changed[sqlite]",),
        "rule 15: a repeated request is the same, whatever its task gives by now",
    ),
    Mutant(
        "a-task-fills-in-what-the-job-named",
        (Edit("queue/defaults.py", "taken = job.defaults & given.options", "taken = given.options"),),
        (f"{DEFAULTS}what_a_job_names_itself_counts_first[sqlite]",),
        "S12: the job's own value first",
    ),
    Mutant(
        "a-task-opens-a-queue-to-a-key",
        (Edit("server/newjobs.py", "call.allow_queue(job.queue)", "call.allow_queue"),),
        (f"{DEFAULTS}a_key_for_some_queues_does_not_get_into_others_by_a_task[sqlite]",),
        "N2: a key that is kept to queues",
    ),
    Mutant(
        "a-heartbeat-makes-a-build-the-newest",
        (
            sql("tasks", "renew", "SET seen_at = :now", "SET seen_at = :now, registered_at = :now", "postgres"),
            sql("tasks", "renew", "SET seen_at = :now", "SET seen_at = :now, registered_at = :now", "sqlite"),
        ),
        tuple(f"{KEPT}what_is_renewed_is_kept_and_does_not_become_the_newest[{kind}]" for kind in KINDS),
        "S12: the build whose worker registered last",
    ),
    Mutant(
        "a-build-that-comes-back-stays-old",
        (sql("tasks", "publish", "OR EXISTS (", "OR 1 = 2 AND EXISTS ("),),
        tuple(f"{DEFAULTS}the_build_that_registered_last_counts[{kind}]" for kind in KINDS),
        "S12: the build whose worker registered last",
    ),
    Mutant(
        "signatures-without-bound",
        both("tasks", "trim", "o.place > :most OR", "o.place > 1000000 * :most OR"),
        tuple(f"{KEPT}rel_h4_a_tenant_keeps_so_many_signatures[{kind}-MOST_BUILDS-2]" for kind in KINDS),
        "H4: the signatures of a tenant are bounded",
    ),
    Mutant(
        "signatures-of-all-tenants-remembered",
        (Edit("engine/signatures.py", "sum(sizes.values()) > MOST_BYTES", "sum(sizes.values()) < 0"),),
        (f"{SIGNATURES}rel_h4_what_is_remembered_of_signatures_has_a_bound[sqlite]",),
        "H4: what is remembered of signatures is bounded",
    ),
    Mutant(
        "payloads-checked-on-the-loop",
        (Edit("queue/submit.py", "if size <= CHECKED_BYTES else await", "if size else await"),),
        tuple(f"{BAD_INPUT}rel_t9_much_json_is_not_checked_on_the_event_loop[{kind}-2]" for kind in KINDS),
        "T9: no request holds the event loop",
    ),
    Mutant(
        "results-checked-on-the-loop",
        (Edit("queue/report.py", "    if size <= CHECKED_BYTES:\n", "    if size >= 0:\n"),),
        tuple(f"{BAD_INPUT}rel_t9_much_json_is_not_checked_on_the_event_loop[{kind}-2]" for kind in KINDS),
        "T9: no request holds the event loop",
    ),
    Mutant(
        "too-many-signatures-are-told-to-wait",
        (Edit("queue/tasks.py", "if size > MOST_BYTES:", "if size < 0:"),),
        tuple(f"{KEPT_OF}[{kind}]" for kind in KINDS),
        "H4: what never fits is refused for good",
    ),
    Mutant(
        "a-session-for-signatures-that-never-fit",
        (Edit("engine/exchange.py", "    await engine.signatures.texts(tenant, asked.signatures)", "    pass"),),
        tuple(f"{KEPT_OF}[{kind}]" for kind in KINDS),
        "H4: a registration that is refused opens no session",
    ),
    Mutant(
        "signatures-read-in-one-go",
        (Edit("engine/signatures.py", "read(builds)\n            await pace.give_way()\n", "read(builds)\n"),),
        tuple(f"{SIGNATURES}rel_t9_reading_many_signatures_gives_way[{kind}]" for kind in KINDS),
        "T9: no request holds the event loop",
    ),
    Mutant(
        "a-look-from-before-a-hint-is-enough",
        (
            Edit(
                "engine/signatures.py",
                "begun_at, hint = self._outside.monotonic(), self._hints.get(tenant)",
                "begun_at, hint = self._outside.monotonic(), object()",
            ),
            Edit(
                "engine/signatures.py",
                "known.hint = begun_at, hint",
                "known.hint = begun_at, self._hints.get(tenant)",
            ),
        ),
        tuple(f"{TASKS}a_look_that_began_before_a_hint_is_not_enough[{kind}]" for kind in KINDS),
        "S12: what was heard of is known",
    ),
    Mutant(
        "a-hint-is-for-all-tenants",
        (Edit("engine/signatures.py", "hint if tenant in (None, name) else self._hints.get(name)", "hint"),),
        tuple(
            f"{SIGNATURES}rel_t15_what_one_tenant_publishes_costs_others_nothing[{kind}-hint0-looked0]"
            for kind in KINDS
        ),
        "T15: what one tenant publishes costs other tenants nothing",
    ),
    Mutant(
        "key-taken-from-a-holder",
        both("submit", "take_keys", "WHERE d.expires_at <= :now", "WHERE d.key IS NOT NULL"),
        races("submits::rel_x19_one_key_on_two_servers"),
        "I3: a key within its window stays with the job that has it",
    ),
    Mutant(
        "key-held-for-ever",
        both("submit", "take_keys", "WHERE d.expires_at <= :now", "WHERE d.key IS NULL"),
        races("submits::rel_x19_a_key_whose_time_is_over"),
        "I3: a key whose window is over can be taken",
    ),
    Mutant(
        "key-content-not-compared",
        (Edit("queue/submit.py", "if content_hash != job.content_hash:", "if not content_hash:"),),
        races("submits::rel_x19_one_key_other_content"),
        "rule 15: the same key with other content is refused",
    ),
    Mutant(
        "commit-not-tracked",
        (Edit("queue/submit.py", "db.transaction(tracked=True)", "db.transaction()"),),
        races("submits::rel_x4_cut_after_commit", "submits::rel_x4_cut_before_commit"),
        "rule 4: an unknown commit is asked about",
    ),
    Mutant(
        "commit-aborted-taken-for-done",
        (Edit("db/postgres.py", 'if status == "committed":', 'if status in ("committed", "aborted"):'),),
        races("submits::rel_x4_cut_before_commit"),
        "I1: what was rolled back is not acknowledged",
    ),
    Mutant(
        "commit-done-taken-for-aborted",
        (
            Edit("db/postgres.py", 'if status == "committed":', 'if status == "":'),
            Edit("db/postgres.py", 'if status == "aborted":', "if status is not None:"),
        ),
        races("submits::rel_x4_cut_after_commit"),
        "M9, I2: what was committed is not run again",
    ),
    Mutant(
        "nul-accepted",
        (Edit("queue/newjob.py", 'if "\\x00" in text:', 'if "\\x00" == text:'),),
        races("submits::rel_k14_nul_in_a_job_is_refused[*-unique_key]"),
        "K14: a NUL is refused before any statement",
    ),
    Mutant(
        "nul-in-an-error",
        (Edit("queue/newjob.py", '.replace("\\x00", "\\N{SYMBOL FOR NULL}")', ""),),
        races("submits::rel_k14_nul_in_an_error_keeps_the_status"),
        "K14: what a task says never costs the record that it failed",
    ),
    Mutant(
        "poison-fails-its-neighbours",
        (
            Edit(
                "queue/submit.py",
                "            refused[number] = problem\n        else:",
                "            raise problem\n        else:",
            ),
        ),
        races("submits::rel_x28_poison_among_many_requests"),
        "rule 16: a bad request never fails its neighbours",
    ),
    Mutant(
        "retry-takes-a-unique-key",
        (Edit("queue/deadletters.py", 'if row["unique_key"] is None or row["id"] in won', "if won is not None"),),
        races("submits::rel_x19_unique_key_beside_retry"),
        "I3: a retry does not live beside the job that has its unique key",
    ),
    *(
        Mutant(
            f"unique-key-kept-after-{end}",
            both(step, query, "flags & 4 = 4", "flags & 4 = 5"),
            races(f"guards::unique_key_is_free_after_every_end[*-{end}]"),
            "I3: a job that ends frees its unique key",
        )
        for end, (step, query) in UNIQUE_ENDS.items()
    ),
)
