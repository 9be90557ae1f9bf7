"""Guards below the queue: migrations, partitions, poolers, lock time-outs, and the one SQLite file."""

from __future__ import annotations

from tests.mutants.mutant import Edit, Mutant, races

MUTANTS = (
    Mutant(
        "rows-that-were-passed-stay-in-memory",
        (Edit("db/sqlite.py", 'connection.execute("PRAGMA temp.auto_vacuum=FULL")', "pass"),),
        ("tests/db/test_sqlite.py::test_rel_h4_rows_that_were_passed_leave_memory",),
        "H4: memory of a large request is given back",
    ),
    Mutant(
        "migration-with-other-content",
        (Edit("db/migrate.py", "if by_number[number].checksum != checksum:", "if not checksum:"),),
        races("strangers::migration_with_other_content"),
        "a migration that was applied never changes",
    ),
    Mutant(
        "migration-of-a-newer-program",
        (
            Edit(
                "db/migrate.py",
                "in sorted(applied.items()):",
                "in sorted(item for item in applied.items() if item[0] in by_number):",
            ),
        ),
        races("strangers::migration_of_a_newer_program"),
        "an unknown schema is refused, never guessed at",
    ),
    Mutant(
        "first-set-up-file-by-file",
        (Edit("db/migrate.py", "missing[:1] if applied else missing", "missing[:1]"),),
        ("tests/db/test_migrate.py::test_a_set_up_that_was_killed_leaves_nothing",),
        "the first set-up is whole or not at all",
    ),
    Mutant(
        "migration-without-lock",
        (Edit("db/migrate.py", "SELECT pg_advisory_xact_lock(hashtext('windlass.migration'));", ""),),
        ("tests/db/test_migrate.py::test_of_many_migrators_one_applies",),
        "one migrator at a time",
        only="postgres",
    ),
    Mutant(
        "partitions-made-without-lock",
        (
            Edit(
                "db/partitions.py", "await transaction.fetch(SQL.lock_partitions)", "await transaction.fetch(SQL.clock)"
            ),
        ),
        races("partitions::rel_x23_partitions_made_by_two"),
        "X23: two servers may make the same partitions",
    ),
    Mutant(
        "statements-kept-behind-a-pooler",
        (Edit("db/postgres.py", "statement_cache_size=0 if self._pooled else 256", "statement_cache_size=256"),),
        races("every_step::rel_k19_step_through_a_pooler[fail]"),
        "K19, rule 18: nothing outlives a transaction behind a pooler",
    ),
    Mutant(
        "no-lock-time-out",
        (Edit("db/postgres.py", '    "lock_timeout": "1s",\n', ""),),
        races("claims::rel_x24_claim_beside_ddl"),
        "rule 20: nobody waits long for a lock",
    ),
    Mutant(
        "two-servers-on-one-file",
        (Edit("db/files.py", "fcntl.LOCK_EX | fcntl.LOCK_NB", "fcntl.LOCK_SH | fcntl.LOCK_NB"),),
        races("sqlite_file::rel_x32_second_server_is_refused"),
        "Q1: one process in the server's role per file",
    ),
    Mutant(
        "clock-goes-back",
        (
            Edit(
                "db/sqlite.py",
                "self._now_us = max(self._now_us, to_us(self._clock()))",
                "self._now_us = to_us(self._clock())",
            ),
        ),
        races("sqlite_file::rel_k10_clock_set_back"),
        "Q3, K10: the clock of a SQLite file is monotone",
    ),
    Mutant(
        "clock-goes-back-over-a-restart",
        (Edit("db/sqlite.py", "self._now_us = self._ceiling_us", "self._now_us = 0"),),
        races("sqlite_file::rel_k10_clock_set_back_over_a_restart"),
        "Q3, K10: the clock of a SQLite file is monotone over restarts",
    ),
    Mutant(
        "writer-left-in-a-transaction",
        (
            Edit(
                "db/sqlite.py",
                "await asyncio.shield(self._on_writer(self._writer.roll_back))",
                "await asyncio.shield(self._on_writer(int))",
            ),
        ),
        races("every_step::rel_k20_task_cancelled_anywhere[sqlite-fail]"),
        "K20: a step that is cut off leaves nothing open",
    ),
    Mutant(
        "sqlite-file-by-the-umask",
        (Edit("db/files.py", "PRIVATE = 0o600", "PRIVATE = 0o666"),),
        ("tests/db/test_files.py::test_only_their_owner_may_read_the_files[0o0]",),
        "nobody else on the machine reads the jobs",
    ),
    Mutant(
        "old-sqlite-file-stays-open",
        (Edit("db/files.py", "                path.chmod(PRIVATE)\n", "                pass\n"),),
        ("tests/db/test_files.py::test_files_that_everybody_could_read_are_closed[420-384]",),
        "nobody else on the machine reads the jobs",
    ),
    Mutant(
        "address-that-others-may-write",
        (Edit("config/address.py", "if read.st_mode & (stat.S_IWGRP | stat.S_IWOTH):", "if read.st_mode < 0:"),),
        ("tests/db/test_files.py::test_an_address_that_others_may_write_is_not_believed",),
        "a key is sent only where the server's owner says",
    ),
    Mutant(
        "empty-file-taken-as-new",
        (Edit("db/sqlite.py", "        files.check_is_kept(file)\n", ""),),
        ("tests/db/test_files.py::test_a_file_cut_to_nothing_is_not_taken_as_new",),
        "a lost database is told, never begun anew",
    ),
    Mutant(
        "writes-into-a-damaged-file",
        (Edit("db/sqlite.py", "                self._is_damaged = True\n", ""),),
        ("tests/db/test_files.py::test_a_file_damaged_while_it_is_open_takes_no_more_writes",),
        "nothing is written into a file that is known to be damaged",
    ),
    Mutant(
        "start-without-a-look-at-the-file",
        (Edit("db/sqlite_connection.py", "        self._check_roots()\n", ""),),
        ("tests/db/test_files.py::test_the_roots_of_a_file_of_any_size_are_looked_at",),
        "a damaged file is refused at the start, whatever its size",
    ),
    Mutant(
        "check-without-an-end",
        (Edit("db/sqlite_connection.py", "            after_s = INTERRUPT_S\n", "            return\n"),),
        ("tests/db/test_files.py::test_the_check_of_a_file_ends_in_time",),
        "the check of a large file ends in time",
    ),
    Mutant(
        "damaged-text-is-a-fault-of-ours",
        (Edit("db/sqlite_connection.py", '"not decode to UTF-8" in str(error)', "error is None"),),
        ("tests/server/test_ready.py::test_damage_that_a_start_does_not_see_is_told_when_it_is_met[text]",),
        "damage is told as damage",
    ),
    Mutant(
        "commits-that-do-not-wait",
        (Edit("db/postgres.py", '    "synchronous_commit": "on",\n', ""),),
        ("tests/db/test_durability.py::test_every_write_waits_for_its_commit",),
        "G6: what was acknowledged survives a crash",
    ),
    Mutant(
        "connection-given-back-without-end",
        (Edit("db/postgres_pool.py", "_holder.release(CONNECT_TIMEOUT_S)", "_holder.release(None)"),),
        ("tests/db/test_postgres.py::test_a_connection_that_the_pool_closes_is_given_back_in_time",),
        "a server that says nothing holds nobody",
    ),
    Mutant(
        "commits-that-need-not-wait",
        (Edit("db/durability.sql", ", 'synchronous_commit')", ")"),),
        ("tests/db/test_durability.py::test_a_server_refuses_a_database_whose_commits_do_not_wait",),
        "G6: what was acknowledged survives a crash",
    ),
    Mutant(
        "database-that-forgets",
        (Edit("db/durability.py", "    if not found:\n", "    if found or not found:\n"),),
        ("tests/db/test_durability.py::test_a_server_refuses_a_database_that_forgets",),
        "G6: what was acknowledged survives a crash",
    ),
)
