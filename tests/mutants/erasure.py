"""Guards of deletion and erasure: the next owner of a name reads nothing, and nothing of what was erased comes back."""

from __future__ import annotations

from tests.mutants.mutant import Edit, Mutant, both, races, sql

ERASURE = "tests/queue/test_erasure.py::test_"
TENANTS = "tests/queue/test_tenants.py::test_"
SIGNATURES = "tests/engine/test_signatures.py::test_a_tenant_made_again_is_not_bound_to_the_old_ones_tasks"
AGAIN = f"{TENANTS}a_tenant_made_again_reads_nothing_of_the_old_one"
WIPED = f"{ERASURE}rel_t24_nothing_of_an_erased_tenant_is_left_in_the_file"
TAKES_NOTHING = f"{ERASURE}a_tenant_that_is_being_erased_takes_nothing"
RACES = "tests/queue/races/test_erasure.py::test_"
WRITTEN = f"{RACES}rel_t24_words_that_are_being_written_are_erased"
WRITTEN_IN_TENANT = f"{RACES}rel_t24_words_of_a_tenant_that_is_being_erased_are_erased"
LEFT = f"{ERASURE}rel_t24_nothing_of_an_erased_tenant_is_left"
REFUSED = "T24: nothing is added to a tenant that is being erased"
M1 = "M1: the next owner of a name reads nothing of the last one"


def named(query: str) -> tuple[Edit, ...]:
    """Return the edit that leaves what bears a tenant's name."""
    return (Edit("queue/leftovers.py", f"    SQL.{query},\n", ""),)


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
    Mutant(
        "tenant-leaves-its-figures",
        (
            *named("remove_stats"),
            Edit("queue/tenants.py", "await leftovers.remove_rows(db, leftovers.SQL.remove_stats, name)", "pass"),
        ),
        (AGAIN,),
        M1,
    ),
    Mutant(
        "late-signatures-are-the-next-owners",
        (
            sql("tasks", "recent", "AND (EXISTS (", "AND (true OR EXISTS (", count=2),
            sql("tasks", "of_tasks", "WHERE EXISTS (", "WHERE true OR EXISTS (", count=2),
        ),
        ("tests/engine/test_signatures.py::test_the_first_submit_under_a_deleted_name_minds_no_late_worker",),
        M1,
    ),
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
        "job-erased-beside-a-writer",
        (Edit("queue/erasure.py", "await transaction.fetch(SQL.lock_words, ids=[job_id])", "pass"),),
        tuple(f"{WRITTEN}[{words}]" for words in ("tell", "note")),
        "T24: what was being written when a job was erased is erased",
    ),
    Mutant(
        "tenant-erased-beside-a-writer",
        (Edit("queue/erasure.py", "await transaction.fetch(SQL.lock_words, ids=sorted(job_ids))", "pass"),),
        tuple(f"{WRITTEN_IN_TENANT}[{words}]" for words in ("tell", "note")),
        "T24: what was being written when a tenant was erased is erased",
    ),
    Mutant(
        "checkpoint-written-beside-an-erasure",
        (Edit("queue/checkpoints.py", "await transaction.fetch(SQL.lock_notes, notes=merged)", "pass"),),
        (f"{WRITTEN}[note]", f"{WRITTEN_IN_TENANT}[note]"),
        "T24: an erasure waits for whoever writes a checkpoint",
    ),
    Mutant(
        "line-written-after-an-erasure",
        (sql("logs", "keep", "AND q.fence = c.fence AND q.place + 0 = 1) = 1", ") IS DISTINCT FROM 2", "postgres"),),
        (f"{RACES}rel_t24_a_line_that_waited_is_not_written_after_an_erasure",),
        "T24: nothing is written of a job that was erased",
    ),
    Mutant(
        "name-forgotten-that-has-a-new-owner",
        (
            Edit(
                "queue/erasure.py",
                'if await transaction.fetch(SQL.lock_ended, tenant=row["name"], age_ms=age_ms):',
                "if row:",
            ),
        ),
        (f"{RACES}rel_t24_a_name_is_forgotten_or_given_again[postgres]",),
        M1,
        only="postgres",
    ),
    Mutant(
        "late-workers-of-a-deleted-tenant",
        (
            Edit(
                "queue/leftovers.py", "was_there or await transaction.fetch(SQL.was_deleted, tenant=name)", "was_there"
            ),
        ),
        (f"{TENANTS}what_came_after_a_delete_is_not_the_next_owners",),
        M1,
    ),
    Mutant(
        "late-workers-at-the-first-use",
        (Edit("queue/lanes.py", "await remove_late(transaction, tenant)", "pass"),),
        (f"{TENANTS}what_came_after_a_delete_is_not_the_next_owners[sqlite-first submit]",),
        M1,
    ),
    Mutant(
        "late-workers-at-the-first-schedule",
        (Edit("queue/schedulewrites.py", 'await remove_late(transaction, row["name"])', "pass"),),
        (f"{TENANTS}what_came_after_a_delete_is_not_the_next_owners[sqlite-first schedule]",),
        M1,
    ),
    Mutant(
        "deleted-tenant-without-a-mark",
        (
            Edit(
                "queue/tenants.py",
                "await transaction.fetch(SQL.leave_mark, tenant=name, credit_ms=STRICT_PRIORITY_MS)",
                "pass",
            ),
        ),
        (f"{TENANTS}what_came_after_a_delete_is_not_the_next_owners",),
        M1,
    ),
    Mutant(
        "worker-that-comes-before-its-tenant-is-ended",
        (
            sql(
                "leftovers",
                "was_deleted",
                "SELECT 1 AS one FROM lane WHERE tenant = :tenant AND retired = 1 LIMIT 1",
                "SELECT 1 AS one WHERE :tenant <> ''",
            ),
        ),
        (f"{TENANTS}a_worker_that_comes_before_its_tenant_stays",),
        "a name that was never deleted has no last owner",
    ),
    Mutant(
        "refused-create-ends-workers",
        (
            Edit(
                "queue/tenants.py",
                "        if rows:\n            await leftovers",
                "        if was:\n            await leftovers",
            ),
        ),
        (f"{TENANTS}a_create_that_is_refused_changes_nothing",),
        "a call that is refused changes nothing",
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
        "deleted-rows-left-to-the-build",
        (Edit("db/sqlite.py", 'self._writer.execute("PRAGMA secure_delete=ON")', "pass"),),
        ("tests/db/test_sqlite.py::test_what_is_deleted_is_overwritten_whatever_the_build_does",),
        "T24: what is deleted is overwritten, whatever SQLite does by default",
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
        (
            sql("erasure", "empty_dead", "AND l.tenant = :tenant", "AND :tenant IS NOT NULL", "sqlite", count=2),
            sql("erasure", "empty_dead", "AND l.tenant = :tenant", "AND CAST(:tenant AS text) <> ''", "postgres"),
        ),
        (f"{ERASURE}another_tenants_job_is_not_erased",),
        "T5: another tenant's job is like one that never was",
    ),
)
