"""Guards of what people do: cancel, pause, change, promotion; and whose job it is."""

from __future__ import annotations

from tests.mutants.mutant import Edit, Mutant, both, races, sql

ANYBODY = "CAST(:tenant AS text) IS NOT NULL"
FOREIGN = "I18: a job of another tenant is not there"

# query: the acts and places that show it
FOREIGN_ACTS = {
    "pause_queued": ("pause", "ready"),
    "pause_timed": ("pause", "timed"),
    "resume_queued": ("resume", "paused"),
    "resume_timed": ("resume", "paused_timer"),
    "find_waiting": ("change", "ready"),
}
FOREIGN_LISTS = {"list_queued": "ready", "list_timed": "timed", "list_done": "cancelled", "list_dead": "dead"}

MUTANTS = (
    Mutant(
        "cancel-prolongs-a-cancel",
        both("control", "cancel_leased", "AND q.flags & 2 = 0", "", sqlite="AND flags & 2 = 0"),
        races("guards::second_cancel_does_not_prolong_the_first"),
        "rule 15: a cancel repeated changes nothing",
    ),
    Mutant(
        "cancel-ends-leased-jobs",
        (
            sql("control", "cancel_queued", "AND q.session IS NULL", "", "postgres"),
            sql("control", "cancel_queued", "AND queue.session IS NULL", "", "postgres"),
            sql("control", "cancel_queued", "AND q.session IS NULL", "", "sqlite"),
        ),
        races("claims::rel_x6_claim_beside_cancel"),
        "M18, I17: a leased job is told to stop, not ended",
    ),
    Mutant(
        "cancel-locks-in-another-order",
        (sql("control", "lock_places", "ORDER BY q.id FOR UPDATE", "ORDER BY q.id DESC FOR UPDATE", "postgres"),),
        races("deadlocks::rel_x22_locks_are_taken_by_ascending_id[cancel]"),
        "rule 6: one lock order",
    ),
    Mutant(
        "cancel-holds-the-keys-of-one-place-for-the-other",
        (
            Edit(
                "queue/control.py",
                "            # Also of a job that ends at once",
                "            ended += await transaction.fetch(\n"
                "                SQL.cancel_timed, ids=open_ids, tenant=tenant, reason=None)\n"
                "            # Also of a job that ends at once",
            ),
        ),
        races("timers::rel_x22_cancel_beside_submit_of_the_same_keys"),
        "rule 6: one lock order, of unique keys too",
        only="postgres",
    ),
    Mutant(
        "cancel-tried-once",
        (Edit("queue/control.py", "TRIES = 10", "TRIES = 1"),),
        races("timers::rel_x16_promotion_beside_cancel"),
        "I17: a cancel follows a job that moves",
        only="postgres",
    ),
    Mutant(
        "cancel-of-another-tenant",
        (
            *both("control", "lock_places", "l.tenant = :tenant", ANYBODY),
            *both("control", "cancel_leased", "l.tenant = :tenant", ANYBODY),
            *both("control", "cancel_queued", "n.tenant = :tenant", ANYBODY),
        ),
        races("strangers::job_of_another_tenant[*-cancel-ready]", "strangers::job_of_another_tenant[*-cancel-leased]"),
        FOREIGN,
    ),
    Mutant(
        "cancel-of-another-tenants-timer",
        both("control", "cancel_timed", "n.tenant = :tenant", ANYBODY),
        races("strangers::job_of_another_tenant[*-cancel-timed]"),
        FOREIGN,
    ),
    *(
        Mutant(
            f"{query.replace('_', '-')}-of-another-tenant",
            (sql("control", query, "l.tenant = :tenant", ANYBODY),),
            races(f"strangers::job_of_another_tenant[*-{act}-{place}]"),
            FOREIGN,
        )
        for query, (act, place) in FOREIGN_ACTS.items()
    ),
    *(
        Mutant(
            f"{query.replace('_', '-')}-of-another-tenant",
            both("history", query, "WHERE v.tenant = :tenant", f"WHERE {ANYBODY}"),
            races(f"strangers::lists_of_another_tenant[*-{place}-all]"),
            FOREIGN,
        )
        for query, place in FOREIGN_LISTS.items()
    ),
    Mutant(
        "get-of-another-tenant",
        (sql("history", "get", "l.tenant = :tenant", ANYBODY, count=2),),
        races("strangers::job_of_another_tenant[*-get-ready]", "strangers::job_of_another_tenant[*-attempts-dead]"),
        FOREIGN,
    ),
    Mutant(
        "purge-of-another-tenant",
        both("deadletters", "purge", "l.tenant = :tenant", ANYBODY),
        races("strangers::lists_of_another_tenant[*-dead-own]"),
        FOREIGN,
    ),
    Mutant(
        "retry-of-another-tenants-dead",
        both("deadletters", "lock_dead", "l.tenant = :tenant", ANYBODY),
        races("strangers::job_of_another_tenant[*-retry-dead]"),
        FOREIGN,
    ),
    Mutant(
        "retry-of-another-tenants-cancelled",
        both("deadletters", "lock_done", "l.tenant = :tenant", ANYBODY),
        races("strangers::job_of_another_tenant[*-retry-cancelled]"),
        FOREIGN,
    ),
    Mutant(
        "pause-takes-a-lease",
        (sql("control", "pause_queued", "CASE WHEN place = 1 THEN 1 ELSE 3 END", "3"),),
        races("claims::rel_x6_claim_beside_pause_of_the_job"),
        "I22: a paused job that runs stays leased",
    ),
    Mutant(
        "change-of-a-leased-job",
        both("control", "lock_queued", "AND session IS NULL", ""),
        races("claims::rel_x6_claim_beside_change"),
        "a job that is leased is not changed",
    ),
    Mutant(
        "timer-changed-without-lock",
        (sql("control", "lock_timed", "FOR UPDATE", "", "postgres"),),
        races("timers::rel_x16_promotion_beside_change"),
        "I21: a job that is being promoted is not placed twice",
        only="postgres",
    ),
    Mutant(
        "promotion-before-its-time",
        both("timers", "promote", "WHERE due_at <= :now", "WHERE due_at IS NOT NULL"),
        races("guards::not_due_is_not_promoted"),
        "I11: no start before the due time",
    ),
    Mutant(
        "promotion-forgets-a-pause",
        both("timers", "promote", "CASE WHEN t.flags & 1 = 1 THEN 3 ELSE 0 END", "0"),
        races("timers::rel_x16_promotion_beside_pause"),
        "I11: a paused timer is held when due",
    ),
    Mutant(
        "promotion-waits-for-locks",
        (sql("timers", "promote", "FOR UPDATE SKIP LOCKED", "FOR UPDATE", "postgres"),),
        races("timers::rel_x16_promotion_waits_for_nobody"),
        "rule 6: promotion passes by what a rival has locked",
    ),
)
