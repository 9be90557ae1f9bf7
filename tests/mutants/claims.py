"""Guards of handing out: place, pause, deadline, session, limits, and the lanes themselves."""

from __future__ import annotations

from tests.mutants.mutant import Edit, Mutant, both, races, sql

ONCE = "test_what_may_run_once_and_began_is_not_given_to_another"
EARLY = "tests/queue/test_plans_early.py::test_a_plan_made_early_searches_by_key"

HINT = "rel_x20_slow_enqueue_below_the_hint"
HEADS = (
    "WHERE q.place = 0 AND q.lane = w.lane AND q.rank >= w.hint AND (q.start_by IS NULL OR q.start_by > :now)\n"
    "            ORDER BY q.rank, q.id LIMIT w.n"
)

BYTES = "tests/queue/test_claim.py::test_rel_"

MUTANTS = (
    Mutant(
        "a-claim-of-any-size",
        (Edit("queue/claim.py", "is_first or sizes[tenant] <= share", "jobs"),),
        (f"{BYTES}h4_a_claim_takes_no_more_bytes_than_an_answer_holds",),
        "H4: a claim is bounded in bytes",
    ),
    Mutant(
        "one-tenant-takes-the-bytes-of-a-claim",
        (Edit("queue/claim.py", "tenant = tenants.get(job.lane)", 'tenant = ""'),),
        (f"{BYTES}t15_tenants_share_the_bytes_of_a_claim",),
        "T15: tenants share the bytes of a claim",
    ),
    Mutant(
        "leases-without-texts-stay",
        (Edit("queue/claim.py", "                await undo(db, jobs)\n", "                pass\n"),),
        ("tests/queue/test_claim.py::test_jobs_whose_texts_cannot_be_read_are_ready_again",),
        "L4: a lease that nobody is told of does not stay",
    ),
    Mutant(
        "a-claim-asks-a-transaction-that-has-failed",
        (Edit("queue/claim.py", "if not db.capabilities.commits:", "if False:"),),
        ("tests/queue/test_claim.py::test_a_claim_inside_a_transaction_is_undone_with_it",),
        "a cancelled claim says that it was cancelled",
    ),
    Mutant(
        "leases-given-back-without-end",
        (Edit("queue/claim.py", "asyncio.timeout(UNDO_S)", "asyncio.timeout(None)"),),
        ("tests/queue/test_claim.py::test_a_claim_whose_jobs_cannot_be_given_back_ends",),
        "T22: a database that falls silent holds nobody for longer than the time of a round",
    ),
    Mutant(
        "leases-within-an-answer-are-not-told",
        (Edit("engine/exchange.py", "with suppress(WindlassError):  # they", "with suppress(KeyError):  # they"),),
        ("tests/server/test_exchange.py::test_jobs_within_the_bound_are_told_where_the_others_cannot_go_back",),
        "L4: a lease that nobody is told of does not stay",
    ),
    Mutant(
        "leases-beyond-an-answer-stay",
        (
            Edit("engine/exchange.py", "fits, beyond, size = fitting", "handout, beyond, size = fitting"),
            Edit("engine/exchange.py", "in fits.jobs", "in handout.jobs", count=2),
            Edit("engine/exchange.py", "fits.cancel", "handout.cancel"),
        ),
        ("tests/server/test_exchange.py::test_all_jobs_of_a_claim_go_back_when_a_checkpoint_cannot_be_read",),
        "L4: a lease that nobody is told of does not stay",
    ),
    Mutant(
        "erasure-refuses-the-claims-of-others",
        (Edit("engine/hands.py", "if waiter.gone or lane is None:", "assert lane\n            if waiter.gone:"),),
        ("tests/engine/test_dispatch.py::test_a_tenant_erased_during_a_claim_refuses_nobody_else",),
        "T24: the erasure of a tenant disturbs no other",
    ),
    *(
        Mutant(
            f"claim-plans-for-few-{named}",
            (sql("claim", "claim", old, new, "postgres"),),
            (f"{EARLY}[4-claim]",),
            "Q9: a plan made while there was little does not read a backlog whole",
            only="postgres",
        )
        for named, old, new in (
            ("jobs", "j.id = ANY(ARRAY[u.id])", "j.id = u.id"),
            ("sessions", "s.state + 0 = 0", "s.state = 0"),
        )
    ),
    *(
        Mutant(
            f"claim-{name}-{'in-one-lane' if lanes == 1 else 'in-several-lanes'}",
            (sql("claim", "claim", read, read.replace(guard, new), "postgres"),),
            races(f"{test}{lanes}]"),
            rule,
            only="postgres",
        )
        for lanes, read in ((1, f"{HEADS} FOR UPDATE OF q SKIP LOCKED"), (2, f"{HEADS}) x\n     WHERE NOT"))
        for name, guard, new, test, rule in (
            ("below-the-hint", "AND q.rank >= w.hint ", "", f"claims::{HINT}[", "a hint is obeyed until it is opened"),
            (
                "after-the-start-deadline",
                "AND (q.start_by IS NULL OR q.start_by > :now)",
                "",
                "guards::claim_after_the_start_deadline[postgres-",
                "I11: no start after the start deadline",
            ),
        )
    ),
    Mutant(
        "claim-after-the-start-deadline",
        (sql("claim", "claim", "AND (x.start_by IS NULL OR x.start_by > :now)", "", "sqlite"),),
        races("guards::claim_after_the_start_deadline[sqlite-1]"),
        "I11: no start after the start deadline",
        only="sqlite",
    ),
    *(
        Mutant(
            f"claim-waits-for-locks-{'in-one-lane' if lanes == 1 else 'in-several-lanes'}",
            (sql("claim", "claim", f"{old} FOR UPDATE OF q SKIP LOCKED", f"{old} FOR UPDATE OF q", "postgres"),),
            races(f"claims::rel_k2_claim_waits_for_nobody[{lanes}]"),
            "rule 6: a claim passes by what a rival has locked",
            only="postgres",
        )
        for lanes, old in ((1, "LIMIT w.n"), (2, "q.place + 0 = 0\n          "))
    ),
    Mutant(
        "claim-of-one-lane-looks-before-it-locks",
        (sql("claim", "claim", "count(*) OVER (PARTITION BY w.off) = 1", "false", "postgres"),),
        races("claims::rel_k2_claim_waits_for_nobody[1]"),
        "rivals take different jobs of a lane",
        only="postgres",
    ),
    Mutant(
        "claim-keeps-the-fence",
        (
            sql("claim", "claim", "fence = q.fence + 1", "fence = greatest(q.fence, 1)", "postgres"),
            sql("claim", "claim", "fence = fence + 1", "fence = max(fence, 1)", "sqlite"),
        ),
        races("reports::rel_x2_old_worker_reports_after_reclaim[*-complete]"),
        "I5: each lease has its own, higher fence",
    ),
    Mutant(
        "claim-from-a-paused-lane",
        (
            sql("claim", "claim", "AND l.paused = 0", "", "postgres"),
            sql("claim", "claim", "AND l.paused = 0", "", "sqlite"),
        ),
        races("guards::paused_lane_hands_out_nothing", "claims::rel_x6_claim_beside_pause"),
        "I11: nothing is handed out from a paused queue",
    ),
    Mutant(
        "claim-back-from-a-paused-lane",
        both("claim", "claim_back", "AND l.paused = 0", ""),
        races("guards::paused_lane_hands_out_nothing"),
        "I11: nothing is handed back from a paused queue",
    ),
    Mutant(
        "claim-by-the-dead",
        both("claim", "claim", "AND s.state + 0 = 0", "", sqlite="AND s.state = 0"),
        races("guards::claim_by_a_session_that_has_ended"),
        "I6: only a live session gets a lease",
    ),
    Mutant(
        "claim-back-by-the-dead",
        both("claim", "claim_back", "AND s.state + 0 = 0", "", sqlite="AND s.state = 0"),
        races("guards::claim_by_a_session_that_has_ended"),
        "I6: only a live session gets a lease back",
    ),
    *(
        Mutant(
            f"{query.replace('_', '-')}-by-another-tenant",
            both("claim", query, *edits[:2], sqlite=edits[2]),
            races(f"tenants::rel_i18_nobody_claims_for_another_tenant[*-{query}]"),
            "I18: a session gets the jobs of its own tenant",
        )
        for query, edits in {
            "claim": ("AND s.tenant = slot.tenant", "", "AND s.tenant = b.tenant"),
            "claim_back": ("AND l.tenant = :tenant", "AND CAST(:tenant AS text) IS NOT NULL", "AND l.tenant = :tenant"),
        }.items()
    ),
    *(
        Mutant(
            f"{query.replace('_', '-')}-while-draining",
            both("claim", query, "AND s.draining = 0", ""),
            races(f"guards::draining_session_gets_nothing[*-{query}]"),
            "a worker told to drain gets no more",
        )
        for query in ("claim", "claim_back")
    ),
    Mutant(
        "claim-back-by-a-bare-caller",
        both("claim", "claim_back", "AND s.bare = 0", ""),
        races("guards::bare_session_claims_nothing_back"),
        "I22: a bare caller's session may be forgotten as soon as its one lease has ended",
    ),
    Mutant(
        "claim-beside-a-limit",
        both("claim", "claim", "THEN l.limited = 0", "THEN l.limited < 3"),
        races("limits::rel_x6_claim_of_a_server_that_does_not_know_the_limit"),
        "I15: a claim that has not counted takes nothing from a limited queue",
    ),
    Mutant(
        "claim-under-the-limit-of-another-queue",
        both("claim", "claim", "AND o.queue = l.queue", ""),
        races("limits::rel_x7_lanes_of_another_queue"),
        "I15: what was counted is the queue that is claimed from",
    ),
    Mutant(
        "claim-back-beside-a-limit",
        both("claim", "claim_back", "AND l.limited = 0", ""),
        races("limits::rel_x6_claim_of_a_server_that_does_not_know_the_limit"),
        "I15: nothing is handed back past a limit",
    ),
    Mutant(
        "lane-born-free-in-a-limited-queue",
        both("lanes", "make_lanes", "coalesce(o.limited, 0)", "0"),
        races("limits::rel_x6_claim_of_a_server_that_does_not_know_the_limit"),
        "I15: a new lane of a limited queue is limited",
    ),
    Mutant(
        "claim-back-by-another",
        (
            sql("claim", "claim_back", "AND a.session = CAST(:session AS uuid)", "", "postgres"),
            sql("claim", "claim_back", "AND a.session = :session", "", "sqlite"),
        ),
        races("guards::claim_back_by_another"),
        "a retry kept for a worker is that worker's only",
    ),
    Mutant(
        "claim-back-with-any-fence",
        both("claim", "claim_back", "t.fence = i.fence AND", ""),
        races("guards::claim_back_by_another"),
        "K21: an old call does not lease the next attempt",
    ),
    Mutant(
        "claimed-before-it-was-created",
        (sql("claim", "claim", "claimed_at = greatest(:now,", "claimed_at = least(:now,", "postgres"),),
        races("claims::rel_i20_nothing_ends_before_it_began[rescue]"),
        "I20: created, then claimed, also by a transaction that began before",
    ),
    Mutant(
        "lost-before-it-was-claimed",
        (sql("moves", "record_attempts", "greatest(:now, least(", "least(:now, least(", "postgres"),),
        races("claims::rel_i20_nothing_ends_before_it_began[rescue]"),
        "I20: claimed, then ended, also by a transaction that began before",
    ),
    Mutant(
        "expired-before-it-was-created",
        (sql("deadlines", "expire", "greatest(:now, least(", "least(:now, least(", "postgres"),),
        races("claims::rel_i20_nothing_ends_before_it_began[expire]"),
        "I20: created, then ended, also by a transaction that began before",
    ),
    Mutant(
        "completed-before-it-began",
        (sql("report", "complete", "greatest(:now, least(", "least(:now, least(", "postgres"),),
        races("claims::rel_i20_a_report_that_waited_ends_after_the_start[complete]"),
        "I20: started, then ended, also by a report that waited",
    ),
    Mutant(
        "cancel-cut-short-by-a-deadline-that-was",
        (Edit("queue/deadlines.py", " for lease in leases if lease.id in overdue]", " for lease in leases]"),),
        races("claims::rel_x6_cancel_beside_its_deadline"),
        "M15: look after the lock, not before",
        only="postgres",
    ),
    Mutant(
        "begun-and-given-to-another",
        (
            Edit(
                "queue/moves.py",
                "if lease.max_lost == 1 and (started or lease",
                "if lease is None and (started or lease",
            ),
        ),
        tuple(f"tests/queue/test_report.py::{ONCE}[{kind}-close]" for kind in ("sqlite", "postgres")),
        "at most once: what began is not run by another",
    ),
    Mutant(
        "claim-by-a-client",
        (Edit("queue/claim.py", "if not db.capabilities.claims:", "if db is None:"),),
        races("sqlite_file::rel_x32_client_beside_a_server"),
        "Q1: a program beside the server of a SQLite file does not claim",
    ),
    Mutant(
        "limit-counted-before-the-lock",
        (
            Edit(
                "queue/limits.py",
                "        rows = await transaction.fetch(SQL.lock_queue",
                "        [count] = await transaction.fetch(SQL.count_leased, queue=queue)\n"
                "        rows = await transaction.fetch(SQL.lock_queue",
            ),
            Edit(
                "queue/limits.py",
                "        [count] = await transaction.fetch(count_all, queue=queue)\n",
                "",
            ),
        ),
        races("limits::rel_x7_two_servers_one_limit"),
        "M15, I15: look after the lock, not before",
        only="postgres",
    ),
    Mutant(
        "limit-not-locked",
        (sql("limits", "lock_queue", "FOR UPDATE", "", "postgres"),),
        races("limits::rel_x7_two_servers_one_limit"),
        "I15: limits are decided under the lock of the queue's row",
        only="postgres",
    ),
    Mutant(
        "limit-not-counted",
        (Edit("queue/limits.py", 'limit["max_running"] - running', 'limit["max_running"]'),),
        races("limits::rel_x7_two_servers_one_limit"),
        "I15: what runs counts against the limit",
    ),
    Mutant(
        "limit-of-one-lane-only",
        (
            *both("limits", "count_running", "l.queue = o.queue", "l.queue = o.queue AND l.id = o.id"),
            *both("limits", "count_leased", "l.queue = o.queue", "l.queue = o.queue AND l.id = o.id"),
        ),
        races("limits::rel_x7_two_servers_one_limit"),
        "I15: the limit of a queue counts over all its lanes",
    ),
    Mutant(
        "rate-not-charged",
        (Edit("queue/limits.py", 'if jobs and limit["rate_per_s"] is not None:', "if not jobs and limit is None:"),),
        races("guards::rate_is_charged"),
        "I15: what was claimed is charged to the rate",
    ),
    Mutant(
        "lane-made-without-lock",
        (sql("lanes", "lock_tenant", "FOR UPDATE", "", "postgres"),),
        races("claims::rel_x6_new_lane_beside_pause"),
        "rule 5: making a lane meets pausing on the tenant's row",
        only="postgres",
    ),
    Mutant(
        "lane-paused-without-lock",
        (
            Edit(
                "queue/control.py",
                "if not await transaction.fetch(LANES.lock_tenant, tenant=tenant):",
                "if not tenant:",
            ),
        ),
        races("claims::rel_x6_new_lane_inside_pause"),
        "rule 5: pausing meets making a lane on the tenant's row",
        only="postgres",
    ),
    Mutant(
        "lane-born-awake-in-a-paused-queue",
        both("lanes", "make_lanes", "THEN 1 ELSE 0 END", "THEN 0 ELSE 0 END"),
        races("claims::rel_x6_new_lane_beside_pause[*-queue]"),
        "I11: a lane of a paused queue is born paused",
    ),
    Mutant(
        "lane-born-awake-of-a-paused-tenant",
        both("lanes", "make_lanes", "THEN 2 ELSE 0 END", "THEN 0 ELSE 0 END"),
        races("claims::rel_x6_new_lane_beside_pause[*-tenant]"),
        "I11: a lane of a paused tenant is born paused",
    ),
)
