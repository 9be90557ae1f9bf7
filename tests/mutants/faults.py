"""Guards against faults: crashes of the database, nothing left to write to, files that others keep."""

from __future__ import annotations

from tests.mutants.mutant import Edit, Mutant, faults

MUTANTS = (
    Mutant(
        "commit-of-another-era",
        (Edit("db/postgres.py", "if era == named_in:", "if era:"),),
        faults("restart::rel_x25_number_of_a_lost_commit[number given to another]"),
        "X25, rule 4: after a crash the number of a transaction may be another's",
    ),
    Mutant(
        "number-never-seen",
        (Edit("db/postgres.py", "except asyncpg.InvalidParameterValueError:", "except ZeroDivisionError:"),),
        faults("restart::rel_x25_number_of_a_lost_commit[number never seen]"),
        "X25, rule 4: a number that the database never saw was not committed",
    ),
    Mutant(
        "broken-statement-told-as-not-done",
        (
            Edit(
                "db/postgres.py",
                "if query.writes and isinstance(error.__cause__, BROKEN):",
                "if query.writes and isinstance(error.__cause__, ZeroDivisionError):",
            ),
        ),
        faults("restart::rel_x25_backend_ended_in_a_statement"),
        "X25, rule 4: a statement that commits by itself may have been done when its connection breaks",
    ),
    Mutant(
        "pool-exhausted-told-as-no-answer",
        (Edit("db/postgres_pool.py", "pool.get_size() == pool.get_max_size()", "pool.get_size() < 0"),),
        faults("exhausted::rel_x26_pool_exhausted"),
        "X26: a caller is told what is exhausted",
    ),
    Mutant(
        "full-disk-at-commit-unknown",
        (Edit("db/postgres_errors.py", "    asyncpg.InsufficientResourcesError,\n", ""),),
        faults("exhausted::rel_x26_postgres_disk_full_at_commit"),
        "X26: a full disk at COMMIT is an answer, no error of the driver's",
    ),
    Mutant(
        "full-file-is-no-condition",
        (Edit("db/sqlite.py", "(sqlite3.SQLITE_FULL, sqlite3.SQLITE_IOERR,", "(sqlite3.SQLITE_IOERR,"),),
        faults("exhausted::rel_x26_sqlite_disk_full"),
        "X26: a full file is Unavailable",
    ),
    Mutant(
        "full-disk-is-no-condition",
        (Edit("db/sqlite.py", "(sqlite3.SQLITE_FULL, sqlite3.SQLITE_IOERR,", "(sqlite3.SQLITE_FULL,"),),
        faults("exhausted::rel_x26_sqlite_disk_full_at_commit"),
        "X26: a disk that takes no more is Unavailable",
    ),
    Mutant(
        "ceiling-noted-before-commit",
        (
            Edit(
                "db/sqlite.py",
                '        self._writer.execute("COMMIT")\n',
                '        self._ceiling_us = ceiling_us\n        self._writer.execute("COMMIT")\n',
            ),
        ),
        faults("exhausted::rel_x26_clock_after_a_full_disk"),
        "X26, K10: the clock stays above all that was written, also after a full disk",
    ),
    Mutant(
        "busy-file-is-no-condition",
        (Edit("db/sqlite.py", "(sqlite3.SQLITE_BUSY, sqlite3.SQLITE_LOCKED)", "(sqlite3.SQLITE_LOCKED,)"),),
        faults("busy::rel_g1_busy_file[submit]", "busy::rel_g1_busy_file[claim]", "busy::rel_g1_busy_server"),
        "G1: a file that another keeps is Contention",
    ),
    Mutant(
        "file-without-a-log",
        (Edit("db/sqlite.py", "PRAGMA journal_mode=WAL", "PRAGMA journal_mode=OFF"),),
        faults("killed::rel_x32_sqlite_killed_at_a_page[5]"),
        "X32, Q2: what is committed is in the log before it is in the file",
    ),
    Mutant(
        "answer-before-commit",
        (Edit("db/sqlite.py", "await self._on_writer(self._commit)", "self._writer_thread.submit(self._commit)"),),
        faults("killed::rel_x27_submit[sqlite]"),
        "X27, rule 3: the answer leaves after the commit",
    ),
    Mutant(
        "empty-rows-are-none",
        (Edit("db/postgres.py", "if index == 0 or values.count", "if values.count"),),
        ("tests/db/test_seam.py::test_rows_of_nothing_are_rows[postgres-[(None, None, None)]]",),
        "both databases see as many rows as were passed",
    ),
)
