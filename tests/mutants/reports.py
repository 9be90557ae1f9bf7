"""Guards of ending: fence, place and speaker, in the lock and again in each write; deadlines; runs."""

from __future__ import annotations

from tests.mutants.claims import EARLY
from tests.mutants.mutant import Edit, Mutant, both, races, sql

FENCED = {
    # where a lease goes: the query, and how often the guard stands in its text for SQLite
    "ready": ("lease_to_ready", 1),
    "timer": ("lease_to_timer", 2),
    "done": ("lease_to_end", 1),
    "dead": ("lease_to_end", 1),
}


def unfenced(to: str, query: str, count: int) -> Mutant:
    """Return the mutant that moves a lease whatever its fence is."""
    postgres, sqlite = ("q", "queue") if to == "ready" else ("queue", "q")
    return Mutant(
        f"move-to-{to}-with-any-fence",
        (
            sql("moves", query, f"{postgres}.fence = i.fence AND", "", "postgres"),
            sql("moves", query, f"{sqlite}.fence = i.fence AND", "", "sqlite", count=count),
        ),
        races(f"guards::move_of_an_old_fence[*-{to}]"),
        "M3, I7: the statement that writes tests the fence",
    )


def unplaced(to: str, query: str, count: int) -> Mutant:
    """Return the mutant that moves a job that is not leased."""
    postgres, sqlite = ("q", "queue") if to == "ready" else ("queue", "q")
    return Mutant(
        f"move-to-{to}-from-anywhere",
        (
            sql("moves", query, f"AND {postgres}.place + 0 = 1", "", "postgres"),
            sql("moves", query, f"AND {sqlite}.place = 1", "", "sqlite", count=count),
        ),
        races(f"guards::move_of_a_job_that_is_not_leased[*-{to}]"),
        "I7: the statement that writes tests the place",
    )


def unnamed(query: str, named: str, old: str) -> Mutant:
    """Return the mutant that locks a lease without comparing one of its names."""
    return Mutant(
        f"{query.replace('_', '-')}-of-any-{named}",
        both("moves", query, old, ""),
        races(f"guards::lock_names_the_lease[*-{named}]"),
        f"I7: a lease is locked by its {named}",
    )


SMALL_TABLES = "tests/queue/test_plans.py::test_completing_locks_by_ascending_id_in_small_tables"

MUTANTS = (
    Mutant(
        "complete-with-any-fence",
        both("report", "complete", "queue.fence = i.fence AND", "", sqlite="q.fence = i.fence AND"),
        races("reports::rel_k21_old_calls_all_bounce"),
        "M1, I7: an old fence completes nothing",
    ),
    Mutant(
        "complete-from-anywhere",
        both("report", "complete", "AND queue.place + 0 = 1", "", sqlite="AND q.place = 1"),
        races("guards::report_of_a_lease_that_is_held"),
        "I7: only what is leased is completed",
    ),
    Mutant(
        "complete-by-any-worker",
        both("report", "complete", "AND s.worker = i.worker", ""),
        races("sessions::rel_k5_another_worker_cannot_speak"),
        "I7: another worker cannot speak for a lease",
    ),
    Mutant(
        "complete-by-any-session",
        both(
            "report",
            "complete",
            "AND (i.session IS NULL OR i.session = queue.session)",
            "",
            sqlite="AND (i.session IS NULL OR i.session = q.session)",
        ),
        races("sessions::rel_k5_sessions_of_one_name_are_told_apart"),
        "K5: another session of the same name cannot speak for a lease",
    ),
    Mutant(
        "complete-of-any-tenant",
        both("report", "complete", "AND s.tenant = i.tenant", ""),
        races("tenants::rel_i18_a_foreign_report_changes_nothing[*-complete]"),
        "N1, I18: the leases of another tenant are unknown",
    ),
    Mutant(
        "report-told-of-any-tenant",
        (Edit("queue/report.py", "if tenants.get(item.job_id) == item.tenant", "if item.job_id in tenants"),),
        races("tenants::rel_i18_a_foreign_report_is_told_nothing"),
        "N1, I18: a foreign id answers like an unknown one",
    ),
    Mutant(
        "complete-locks-in-another-order",
        (sql("report", "complete", "ORDER BY r.id", "ORDER BY r.id DESC", "postgres"),),
        races("deadlocks::rel_x22_locks_are_taken_by_ascending_id[complete]"),
        "rule 6: one lock order",
    ),
    Mutant(
        "complete-locks-as-it-is-told",
        (sql("report", "complete", "ORDER BY r.id", "", "postgres"),),
        races("deadlocks::rel_x22_overlapping_completions[statement]"),
        "rule 6: one lock order, whoever calls",
    ),
    Mutant(
        "complete-joins-in-any-order",
        (sql("report", "complete", "queue.id = ANY(ARRAY[i.id])", "queue.id = i.id", "postgres"),),
        (f"{EARLY}[0-complete]",),
        "rule 6: the lock order is that of the plan, so there is one plan",
        only="postgres",
    ),
    Mutant(
        "complete-reads-all-leases",
        (sql("report", "complete", "queue.place + 0 = 1", "queue.place = 1", "postgres"),),
        (f"{SMALL_TABLES}[0-0-analysed]",),
        "rule 6: the lock order is that of the plan, so there is one plan",
        only="postgres",
    ),
    Mutant(
        "leases-not-locked",
        (sql("moves", "lock_leases", "FOR UPDATE OF q", "", "postgres"),),
        races("reports::rel_x6_cancel_beside_report[postgres-fail]"),
        "rule 5: what is decided from is locked; else a cancel gets lost",
        only="postgres",
    ),
    Mutant(
        "leases-locked-in-another-order",
        (sql("moves", "lock_leases", "ORDER BY i.id FOR UPDATE", "ORDER BY i.id DESC FOR UPDATE", "postgres"),),
        races("deadlocks::rel_x22_locks_are_taken_by_ascending_id[release]"),
        "rule 6: one lock order",
    ),
    *(
        unnamed(query, named, old)
        for query in ("lock_leases", "lock_free_leases")
        for named, old in (
            ("fence", "q.fence = i.fence AND"),
            ("worker", "AND (i.worker IS NULL OR s.worker = i.worker)"),
            ("session", "AND (i.session IS NULL OR q.session = i.session)"),
            ("tenant", "AND (i.tenant IS NULL OR s.tenant = i.tenant)"),
        )
    ),
    *(unfenced(to, query, count) for to, (query, count) in FENCED.items()),
    *(unplaced(to, query, count) for to, (query, count) in FENCED.items()),
    Mutant(
        "every-end-is-the-same",
        (Edit("queue/report.py", "        return outcome is Outcome.SUCCEEDED\n", "        return True\n"),),
        races("reports::rel_x3_two_ends_on_two_servers"),
        "I7: another end than the recorded one is stale, not repeated",
    ),
    Mutant(
        "release-uses-an-attempt",
        (
            Edit(
                "queue/moves.py",
                "        attempt=lease.attempt - 1,\n        releases=1,",
                "        attempt=lease.attempt,\n        releases=1,",
            ),
        ),
        races("reports::rel_x5_unlisted_lease_beside_its_report[*-complete]"),
        "I10: a release uses no attempt",
    ),
    Mutant(
        "failure-forgets-a-cancel",
        (
            Edit(
                "queue/moves.py",
                "    if lease.cancelling:\n        return cancelled(lease, msgspec.structs.replace(",
                "    if lease is None:\n        return cancelled(lease, msgspec.structs.replace(",
            ),
        ),
        races("reports::rel_x6_cancel_beside_report[*-fail]"),
        "I17: a cancel that was accepted is never forgotten",
    ),
    Mutant(
        "timeout-before-its-time",
        both("deadlines", "overdue", "deadline_at < :now", "deadline_at IS NOT NULL")
        + both("deadlines", "still_overdue", "q.deadline_at < :now", "q.deadline_at IS NOT NULL"),
        races("guards::overdue_only_past_its_deadline"),
        "a lease is revoked past its deadline, not before",
    ),
    Mutant(
        "leased-jobs-expire",
        (
            sql("deadlines", "expire", "WHERE place <> 1 AND", "WHERE", "postgres"),
            sql("deadlines", "expire", "AND queue.place <> 1", "", "postgres"),
            sql("deadlines", "expire", "WHERE place <> 1 AND", "WHERE", "sqlite"),
        ),
        races("guards::expiry_is_for_those_who_wait"),
        "I11: a job that was claimed in time does not expire",
    ),
    Mutant(
        "expiry-before-its-time",
        both("deadlines", "expire", "AND start_by <= :now", ""),
        races("guards::expiry_is_for_those_who_wait"),
        "a job expires at its start deadline, not before",
    ),
    Mutant(
        "retry-of-the-dead-begins-its-fence-anew",
        both("deadletters", "revive_dead", "0, 0, j.fence, 0,", "0, 0, 0, 0,", sqlite="0, 0, d.fence, 0,"),
        races("timers::rel_k2_two_retries"),
        "I5: a retry by hand never resets the fence",
    ),
    Mutant(
        "retry-of-the-cancelled-begins-its-fence-anew",
        both("deadletters", "revive_done", "0, 0, j.fence, 0,", "0, 0, 0, 0,", sqlite="0, 0, d.fence, 0,"),
        races("guards::fence_goes_on_over_a_retry_of_a_cancelled_job"),
        "I5: a retry by hand never resets the fence",
    ),
)
