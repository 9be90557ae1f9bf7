"""Guards of deletion and erasure: the next owner of a name reads nothing, and nothing of what was erased comes back."""

from __future__ import annotations

from tests.mutants.mutant import Edit, Mutant, both, races, sql

ERASURE = "tests/queue/test_erasure.py::test_"
TENANTS = "tests/queue/test_tenants.py::test_"
SIGNATURES = "tests/engine/test_signatures.py::test_a_tenant_made_again_is_not_bound_to_the_old_ones_tasks"
AGAIN = f"{TENANTS}a_tenant_made_again_reads_nothing_of_the_old_one"
WIPED = f"{ERASURE}rel_t24_nothing_of_an_erased_tenant_is_left_in_the_file"
TAKES_NOTHING = f"{ERASURE}a_tenant_that_is_being_erased_takes_nothing"
LEFT = f"{ERASURE}rel_t24_nothing_of_an_erased_tenant_is_left"
REFUSED = "T24: nothing is added to a tenant that is being erased"
M1 = "M1: the next owner of a name reads nothing of the last one"


def named(query: str) -> tuple[Edit, ...]:
    """Return the edit that leaves what bears a tenant's name."""
    return (Edit("queue/erasure.py", f"    SQL.{query},\n", ""),)


MUTANTS = (
    Mutant(
        "tenant-leaves-its-pauses",
        named("remove_pauses"),
        (f"{TENANTS}a_tenant_made_again_has_no_settings_of_the_old_one",),
        M1,
    ),
    Mutant("tenant-leaves-its-sessions", named("leave_sessions"), (AGAIN,), M1),
    Mutant("tenant-leaves-its-keys-of-jobs", named("remove_idempotency"), (AGAIN,), M1),
    Mutant("tenant-leaves-its-signatures", named("remove_tasks"), (AGAIN,), M1),
    Mutant("tenant-leaves-its-figures", named("remove_stats"), (AGAIN,), M1),
    Mutant("queues-of-the-last-owner", (sql("queues", "list_queues", "AND l.retired = 0", ""),), (AGAIN,), M1),
    Mutant(
        "audit-of-the-last-owner",
        both("audit", "list_of_tenant", "happened_at >= coalesce(", "happened_at = coalesce(happened_at, "),
        (f"{TENANTS}the_audit_of_a_deleted_tenant_stays_for_those_above_tenants",),
        M1,
        only="postgres",
    ),
    Mutant(
        "signatures-of-the-last-owner",
        (Edit("engine/signatures.py", "and await self._is_former(tenant)", "and False"),),
        (SIGNATURES,),
        M1,
    ),
    Mutant(
        "submit-to-a-retired-lane",
        both("submit", "submit", "AND l.retired = 0", ""),
        (TAKES_NOTHING, f"{TENANTS}a_server_that_remembers_old_lanes_brings_their_queues_back"),
        REFUSED,
    ),
    Mutant(
        "slot-fired-into-a-retired-lane",
        both("firing", "make_jobs", "AND l.retired = 0", ""),
        (f"{ERASURE}a_schedule_of_a_tenant_that_is_being_erased_makes_no_job",),
        REFUSED,
    ),
    Mutant(
        "lane-made-while-its-tenant-is-erased",
        (Edit("queue/lanes.py", 'refuse_erasing(tenant, locked[0]["erasing"])', "pass"),),
        (TAKES_NOTHING,),
        REFUSED,
    ),
    Mutant(
        "key-made-while-its-tenant-is-erased",
        (Edit("queue/keys.py", 'refuse_erasing(new.tenant, kept[0]["erasing"])', "pass"),),
        (TAKES_NOTHING,),
        REFUSED,
    ),
    Mutant(
        "schedule-made-while-its-tenant-is-erased",
        (Edit("queue/schedulewrites.py", 'refuse_erasing(row["name"], row["erasing"])', "pass"),),
        (TAKES_NOTHING,),
        REFUSED,
    ),
    Mutant(
        "erasure-does-not-wait-for-writers",
        (Edit("queue/erasure.py", "waits=bool(writers)", "waits=False"),),
        races("erasure::rel_t24_an_erasure_waits_for_a_submit_that_has_not_seen_it"),
        "T24: what is written beside an erasure is erased too",
        only="postgres",
    ),
    Mutant(
        "erasure-leaves-what-was-purged",
        (Edit("queue/deadletters.py", "await transaction.fetch(EDITS.purge_jobs, ids=purged)", "pass"),),
        (LEFT,),
        "T24: a purged job leaves no log that nobody can find",
    ),
    Mutant(
        "erasure-forgets-where-it-was",
        (Edit("queue/erasure.py", "removed=removed, after=_FIRST, step=erasure.step + 1", "removed=removed, step=0"),),
        (f"{ERASURE}an_erasure_that_is_broken_off_goes_on",),
        "T24: an erasure comes to its end",
    ),
    Mutant(
        "deleted-rows-stay-in-the-file",
        (Edit("db/sqlite.py", "secure_delete=ON", "secure_delete=FAST"),),
        (f"{ERASURE}rel_t24_nothing_of_an_erased_job_is_left_in_the_files",),
        "T24: what is deleted is overwritten",
    ),
    Mutant(
        "deleted-rows-stay-in-the-log",
        (Edit("db/sqlite_connection.py", "wal_checkpoint(TRUNCATE)", "wal_checkpoint(PASSIVE)"),),
        (WIPED,),
        "T24: the write-ahead log is emptied",
    ),
    Mutant(
        "erasure-ends-while-readers-keep-the-log",
        (Edit("db/sqlite_connection.py", "return not is_busy", "return True"),),
        (f"{ERASURE}rel_t24_an_erasure_is_not_done_while_a_reader_keeps_it_in_the_log",),
        "T24: what was answered as erased is not in the log",
    ),
    Mutant(
        "erased-job-retried",
        (
            Edit(
                "queue/deadletters.py",
                'found = [row for row in found if row["id"] not in erased]',
                "found = list(found)",
            ),
        ),
        (f"{ERASURE}an_erased_job_never_runs_again", *races("erasure::rel_t24_a_job_is_erased_or_runs_again")),
        "T24: a job without its arguments never runs",
    ),
    Mutant(
        "erased-job-replayed",
        (Edit("queue/deadletters.py", "if await erasure.erased_among(db, [job_id]):", "if job_id is None:"),),
        (f"{ERASURE}an_erased_job_never_runs_again",),
        "T24: a job without its arguments never runs",
    ),
    Mutant(
        "job-erased-by-another-tenant",
        both("erasure", "empty_dead", "AND l.tenant = :tenant", "AND CAST(:tenant AS text) IS NOT NULL"),
        (f"{ERASURE}another_tenants_job_is_not_erased",),
        "T5: another tenant's job is like one that never was",
    ),
)
