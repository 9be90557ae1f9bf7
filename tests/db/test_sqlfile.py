"""The loader: what a `.sql` file may say, how it is turned into each dialect, and that every query can run."""

from __future__ import annotations

import re
import sqlite3
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path
from typing import Any

import asyncpg
import pytest

import windlass
from tests.databases import connected
from tests.sqltext import parse
from windlass.db.sqlfile import TABLES, TRANSACTION, Query, SqlFileError, load, qualify
from windlass.queue import history, recurring

ROOT = Path(windlass.__file__).parent
# Those of client/ are run on databases of applications, whatever they are.
SQL_FILES = sorted(path for path in ROOT.rglob("*.sql") if path.parent.name not in ("migrations", "client"))


def one(text: str) -> Query:
    """Return the single query of a file with this text."""
    [query] = parse(text, origin="t.sql").values()
    return query


def queries() -> Iterator[tuple[str, Query]]:
    """Yield every query of the product as it is run; one with filters also with each filter it may get."""
    for path in SQL_FILES:
        for query in load(str(path)):
            if "{filters}" in query.postgres_source:
                yield query.name, query.where(*_clauses(path.stem))
            yield f"{path.stem}.{query.name}", query


def _clauses(stem: str) -> list[str]:
    """Return all that the code beside a file puts in place of its filters."""
    if stem == "recurring":
        return list(recurring._CLAUSES.values())
    return [*history._CLAUSES.values(), "id < :cursor"]


ALL = dict(queries())
GOOD = "-- name: a\n-- Say so.\n-- both\nSELECT :x AS x\n"


@pytest.mark.parametrize(
    ("complaint", "text"),
    [
        ("no `-- name:`", "SELECT 1"),
        ("no `-- name:`", ""),
        ("has no description", "-- name: a\n-- both\nSELECT 1"),
        ("has no description", "-- name: a\n--\n-- both\nSELECT 1"),
        ("it has ['postgres']", "-- name: a\n-- Say so.\n-- postgres\nSELECT 1"),
        ("it has ['sqlite']", "-- name: a\n-- Say so.\n-- sqlite\nSELECT 1"),
        ("it has []", "-- name: a\n-- Say so.\nSELECT 1"),
        ("it has ['both', 'sqlite']", "-- name: a\n-- Say so.\n-- both\nSELECT 1\n-- sqlite\nSELECT 1"),
        ("it has ['both', 'both']", "-- name: a\n-- Say so.\n-- both\nSELECT 1\n-- both\nSELECT 1"),
        (
            "'postgres', 'sqlite']",
            "-- name: a\n-- S.\n-- postgres\nSELECT 1\n-- postgres\nSELECT 1\n-- sqlite\nSELECT 1",
        ),
        ("different parameters: y", "-- name: a\n-- Say so.\n-- postgres\nSELECT :x\n-- sqlite\nSELECT :x, :y"),
        ("different parameters: x, y", "-- name: a\n-- Say so.\n-- postgres\nSELECT :x\n-- sqlite\nSELECT :y"),
        ("two colons", "-- name: a\n-- Say so.\n-- postgres\nSELECT :x::int\n-- sqlite\nSELECT :x"),
        ("a stands twice", GOOD + GOOD),
        ("as many words as there are names", "-- name: a b\n-- Say so.\n-- both\nSELECT {1|2|3}"),
        (
            "the `= ANY(ARRAY[…])` comes first",
            "-- name: a\n-- S.\n-- both\nSELECT 1 FROM a JOIN c b ON b.x = :x AND b.id = ANY(ARRAY[a.id])",
        ),
        ("declared twice", "-- name: a\n-- S.\n-- both\nSELECT 1 FROM rows(:i, a int) AS i, rows(:i, b int) AS j"),
        (
            "different rows",
            "-- name: a\n-- S.\n-- postgres\nTABLE rows(:i, a int) AS i\n-- sqlite\nTABLE rows(:i, b int) AS j",
        ),
        (
            "the columns of rows(:i) stand nowhere",
            "-- name: a\n-- S.\n-- postgres\nSELECT :i\n-- sqlite\nSELECT 1 FROM rows(:i) AS i",
        ),
    ],
)
def test_a_file_that_breaks_the_rules_is_refused(complaint: str, text: str) -> None:
    """One dialect, other parameters or rows, no description, doubles and `::` are found at import."""
    with pytest.raises(SqlFileError, match=re.escape(complaint)):
        parse(text, origin="t.sql")


def test_the_complaint_names_file_and_query() -> None:
    """Who must mend it is told where."""
    with pytest.raises(SqlFileError, match=r"^claim\.sql: take "):
        parse(GOOD + "-- name: take\n-- both\nSELECT 1", origin="claim.sql")


def test_parameters_become_numbers() -> None:
    """On PostgreSQL each name is one number wherever it stands; :now is the clock and nobody passes it."""
    query = one("-- name: a\n-- S.\n-- both\nSELECT :x, :y, :x WHERE :now > :y AND '12:30' = k")

    text, slots = query.postgres

    assert "SELECT $1, $2, $1 WHERE windlass.clock() > $2 AND '12:30' = k" == text
    assert (("x", None), ("y", None)) == slots
    assert {"x", "y"} == query.parameters
    assert (("SELECT :x, :y, :x WHERE :now > :y AND '12:30' = k",), ()) == query.sqlite


def test_a_text_for_both_is_read_for_sqlite() -> None:
    """Lists, looked-up keys, locks, intervals and hints to the planner of PostgreSQL are what SQLite has for them."""
    query = one(
        "-- name: a\n-- S.\n-- both\n"
        "SELECT greatest(q.a, CAST(:x AS int)) FROM unnest(CAST(:ids AS uuid[])) AS i (id)\n"
        "  JOIN queue q ON q.id = ANY(ARRAY[i.id]) LEFT JOIN lane l ON l.id = ANY(ARRAY[q.lane])\n"
        " WHERE q.place + 0 = 1 AND q.at < :now - interval '1 day' AND q.id = ANY(CAST(:ids AS uuid[]))\n"
        " ORDER BY q.id FOR UPDATE OF q SKIP LOCKED"
    )

    [text], _ = query.sqlite

    assert text == (
        "SELECT max(q.a, :x) FROM (SELECT value AS id FROM json_each(:ids)) AS i\n"
        "  CROSS JOIN queue q ON q.id = i.id LEFT JOIN lane l ON l.id = q.lane\n"
        " WHERE q.place = 1 AND q.at < :now - 86400000000 AND q.id IN (SELECT value FROM json_each(:ids))\n"
        " ORDER BY q.id"
    )


def test_queries_that_differ_in_words_stand_once() -> None:
    """Each has its own word of those in braces; nothing is a word, too."""
    found = parse("-- name: a b\n-- Of {one|two}.\n-- both\nSELECT x FROM {queue|timer}{| WHERE y}\n", origin="t.sql")

    assert {"a": "SELECT x FROM queue", "b": "SELECT x FROM timer WHERE y"} == {
        name: query.sqlite_source for name, query in found.items()
    }
    assert ["Of one.", "Of two."] == [query.description for query in found.values()]


def test_rows_become_arrays_or_a_table() -> None:
    """A rows parameter is an array per column on PostgreSQL and a temporary table on SQLite, by the same name."""
    query = one("-- name: a\n-- S.\n-- both\nSELECT i.id FROM rows(:items, id uuid, fence int) AS i WHERE :x = i.fence")

    text, slots = query.postgres
    [statement], [rows] = query.sqlite

    assert "SELECT i.id FROM unnest(CAST($1 AS uuid[]), CAST($2 AS int[])) AS i(id, fence) WHERE $3 = i.fence" == text
    assert (("items", 0), ("items", 1), ("x", None)) == slots
    assert {"items", "x"} == query.parameters
    assert f"SELECT i.id FROM temp.{rows.table} AS i WHERE :x = i.fence" == statement
    assert (("id", "fence"), ("uuid", "int")) == (rows.columns, rows.types)


def test_rows_need_not_be_declared_again() -> None:
    """`rows(:items) AS j` has the columns of the first, in the same dialect and in the other."""
    query = one(
        "-- name: a\n-- S.\n-- postgres\nSELECT 1 FROM rows(:items, id uuid) AS i, rows(:items) AS j\n"
        "-- sqlite\nSELECT 1 FROM rows(:items) AS i; SELECT 2 FROM rows(:items) AS j"
    )

    text, slots = query.postgres

    assert "SELECT 1 FROM unnest(CAST($1 AS uuid[])) AS i(id), unnest(CAST($1 AS uuid[])) AS j(id)" == text
    assert (("items", 0),) == slots
    assert ("SELECT 1 FROM temp.rows_items_id AS i", "SELECT 2 FROM temp.rows_items_id AS j") == query.sqlite[0]


def test_shapes_have_tables_of_their_own() -> None:
    """Two lists of the same name with other columns do not share a temporary table."""
    first, second = (
        one(f"-- name: a\n-- S.\n-- both\nSELECT 1 FROM rows(:i, {columns}) AS i")
        for columns in ("a int", "a int, b int")
    )

    assert first.sqlite[1][0].table != second.sqlite[1][0].table


def test_a_statement_returns_what_names_its_transaction() -> None:
    """`transaction()` is a column of that name, which SQLite has no use for."""
    query = one("-- name: a\n-- S.\n-- both\nSELECT id, transaction() FROM job")

    assert f"SELECT id, {TRANSACTION} AS transaction_name FROM windlass.job" == query.postgres[0]
    assert "SELECT id, NULL AS transaction_name FROM job" == query.sqlite[0][0]


@pytest.mark.parametrize(
    ("expected", "text"),
    [
        ("SELECT 1 FROM windlass.queue q JOIN windlass.job j ON true", "SELECT 1 FROM queue q JOIN job j ON true"),
        ("INSERT INTO windlass.queue (id)", "INSERT INTO queue (id)"),
        ("UPDATE windlass.lane SET queue = 1", "UPDATE lane SET queue = 1"),
        ("DELETE FROM windlass.job USING q WHERE job.id = q.id", "DELETE FROM job USING q WHERE job.id = q.id"),
        ("DELETE FROM windlass.dedup USING windlass.job", "DELETE FROM dedup USING job"),
        ("SELECT queue, l.queue AS session FROM windlass.lane l", "SELECT queue, l.queue AS session FROM lane l"),
        ("SELECT q.session, attempt FROM windlass.queue q", "SELECT q.session, attempt FROM queue q"),
        ("FROM pick JOIN due ON true", "FROM pick JOIN due ON true"),
        ("extract(epoch FROM t.due_at)", "extract(epoch FROM t.due_at)"),
        ("extract(epoch FROM tat_at - now())", "extract(epoch FROM tat_at - now())"),
        ("IS DISTINCT FROM queue.fence", "IS DISTINCT FROM queue.fence"),
        ("FROM windlass.session s FOR UPDATE OF s", "FROM session s FOR UPDATE OF s"),
        ("FROM\n  windlass.timer\n", "FROM\n  timer\n"),
        ("FROM windlass.jobs", "FROM windlass.jobs"),
        ("FROM pg_catalog.job", "FROM pg_catalog.job"),
        ("ON CONFLICT (key) DO UPDATE SET job_id = 1", "ON CONFLICT (key) DO UPDATE SET job_id = 1"),
    ],
)
def test_only_tables_get_the_schema(expected: str, text: str) -> None:
    """Our tables are qualified where a table can stand; columns, aliases and CTEs of any name are not."""
    assert expected == qualify(text)


def test_several_statements_for_sqlite() -> None:
    """A SQLite text may be several statements, in order; comments are gone."""
    query = one("-- name: a\n-- S.\n-- postgres\nSELECT 1;\n-- sqlite (two)\nDELETE FROM job; -- why\nSELECT 1;\n")

    assert ("DELETE FROM job", "SELECT 1") == query.sqlite[0]
    assert "SELECT 1" == query.postgres[0]


@pytest.mark.parametrize(
    ("writes", "text"),
    [
        (False, "SELECT 1 FROM job"),
        (True, "INSERT INTO job (id) VALUES (1)"),
        (True, "UPDATE job SET id = 1"),
        (True, "UPDATE job AS j SET id = 1"),
        (True, "UPDATE job j SET id = 1"),
        (True, "WITH x AS (DELETE FROM job RETURNING id) SELECT id FROM x"),
        (False, "SELECT started_at AS updated FROM job"),
    ],
)
def test_what_writes_is_known(writes: bool, text: str) -> None:
    """A query that changes anything goes to the writer, all others to readers."""
    assert writes is one(f"-- name: a\n-- S.\n-- both\n{text}").writes


def test_what_locks_is_a_write_on_both() -> None:
    """A lock on PostgreSQL makes the query a write on SQLite too: the writer takes the lock's place."""
    assert one("-- name: a\n-- S.\n-- postgres\nSELECT 1 FROM job FOR UPDATE\n-- sqlite\nSELECT 1 FROM job").writes


def test_filters_are_joined_by_and() -> None:
    """`{filters}` becomes the clauses given, or true; their parameters count."""
    query = one("-- name: a\n-- S.\n-- both\nSELECT 1 WHERE {filters}")

    filtered = query.where("a = :a", "b < :b")

    assert "SELECT 1 WHERE a = $1 AND b < $2" == filtered.postgres[0]
    assert {"a", "b"} == filtered.parameters
    assert "SELECT 1 WHERE true" == query.postgres[0]


def test_an_unknown_name_is_an_error() -> None:
    """A misspelt query fails where it is named, with the file."""
    with pytest.raises(AttributeError, match=r"history\.sql has no query named gett"):
        _ = history.SQL.gett


@pytest.mark.parametrize("path", SQL_FILES, ids=lambda path: path.stem)
def test_every_query_has_a_user(path: Path) -> None:
    """A query that the module beside its file does not name is dead and goes."""
    code = path.with_suffix(".py").read_text(encoding="utf-8")

    assert [] == [
        query.name for query in load(str(path)) if not re.search(rf'\bSQL\.{query.name}\b|"{query.name}"', code)
    ]


def test_every_table_is_known_to_the_loader() -> None:
    """The list of names that get the schema is the list of tables and views that the migrations make."""
    text = "".join(path.read_text(encoding="utf-8") for path in (ROOT / "db" / "migrations").glob("*.sql"))
    made = set(re.findall(r"CREATE (?:TABLE|VIEW) windlass\.(\w+)", text))

    assert TABLES == made | {"migration"}


def test_every_query_prepares_on_sqlite(sqlite_template: Path) -> None:
    """Each statement of each query is understood by a real SQLite with the real schema."""
    failed = {}
    with closing(sqlite3.connect(f"{sqlite_template.as_uri()}?mode=ro", uri=True)) as connection:
        for name, query in ALL.items():
            statements, lists = query.sqlite
            for rows in lists:
                connection.execute(f"CREATE TEMP TABLE IF NOT EXISTS {rows.table} ({', '.join(rows.columns)})")
            values: dict[str, Any] = dict.fromkeys([*query.parameters, "now"])
            try:
                for statement in statements:
                    made = statement.startswith("CREATE TEMP TABLE")
                    connection.execute(statement if made else f"EXPLAIN {statement}", () if made else values).fetchall()
            except sqlite3.Error as error:
                failed[name] = str(error)
    assert {} == failed


USE_OF_JOB = re.compile(r"\b(?:FROM|JOIN|UPDATE|USING) job\b(?: (?:AS )?(?!SET|WHERE|ORDER|LIMIT|USING|ON)(\w+))?")


def test_job_is_looked_up_row_by_row() -> None:
    """A list of ids as it is opens every partition of `job` and reads each; `ANY(ARRAY[i.id])` of a row opens one."""
    wrong = []
    for name, query in ALL.items():
        for use in USE_OF_JOB.finditer(query.postgres_source):
            listed = rf"\b(?:{use[1] or 'job'}|job)\.id (?:= ANY\((?!ARRAY\[)|IN\b)"
            if re.search(listed, query.postgres_source) or " FROM job WHERE id = ANY(" in query.postgres_source:
                wrong.append(name)

    assert [] == wrong
    assert sum(len(USE_OF_JOB.findall(query.postgres_source)) for query in ALL.values()) > 40


async def test_every_query_prepares_on_postgres(postgres_url: str) -> None:
    """Each query is understood by a real PostgreSQL without a search path, with the types it can infer."""
    failed = {}
    async with connected(postgres_url) as connection:
        await connection.execute("SET search_path = pg_catalog")
        for name, query in ALL.items():
            text, slots = query.postgres
            try:
                prepared = await connection.prepare(text)
            except asyncpg.PostgresError as error:
                failed[name] = str(error)
            else:
                assert len(slots) == len(prepared.get_parameters()), name

    assert {} == failed
