"""Named queries: each `.sql` file of `queue/`, both dialects checked against each other when a query is first used.

    -- name: promote
    -- One sentence: what it does.  Further lines: locks, index, returns.
    -- postgres
    …
    -- sqlite
    …; …

Where both say the same, the text stands once, under `-- both`, in the words of PostgreSQL (SQLite: `_SQLITE_READS`).
A join by `= ANY(ARRAY[…])` keeps its order on both; it comes first after ON. Nothing given to `greatest` or
`least` may be NULL: SQLite then answers NULL.
A `-- sqlite` text may hold several statements; they run in order in one transaction, and the rows come from the
last one that returns any.
Queries that differ in a few words stand once, under all their names: of `{queue|timer}` the first query has `queue`.
A line `-- hot: why` in the description makes a query that only reads run where those that write do.
`:name` is a parameter, `:now` the database's clock, `rows(:items, id uuid, fence int) AS i` a list of rows;
where the same list stands again in the query its columns need not be repeated: `rows(:items) AS i`.
`octets(a, b)` stands for the bytes of these texts together, which PostgreSQL tells without reading them.
`ms(a - b)` stands for the whole milliseconds between two instants.
`transaction()` in a list of columns returns the transaction's name, so that its fate can be asked for (postgres.py).
On PostgreSQL the loader puts table names into the schema `windlass`, so that no `search_path` is needed.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass, replace
from functools import cache, cached_property, lru_cache
from pathlib import Path

SCHEMA = "windlass"
TABLES = frozenset(
    (
        "attempt attempts audit backfill backfill_job checkpoint dead dedup done duty erased event job job_aliases "
        "job_events jobs jobs_dead jobs_done jobs_queued jobs_timed key lane leaders log migration outbox pause pulse "
        "queue schedule schedule_history schedule_next schedule_runs schedule_wait schedule_watch server session stat "
        "task tenant timer workers"
    ).split()
)

_NAME = re.compile(r"^-- name: ([\w ]+)$", re.MULTILINE)
_ONE_OF = re.compile(r"\{([^{}]*\|[^{}]*)\}")
_DIALECT = re.compile(r"^-- (postgres|sqlite|both)\b[^\n]*$", re.MULTILINE)
_PARAMETER = re.compile(r"(?<![:\w]):([a-z]\w*)")
_ROWS = re.compile(r"\brows\(:(\w+),([^)]*)\)\s+AS\s+(\w+)")
_ROWS_AGAIN = re.compile(r"\brows\(:(\w+)\)")
_TABLE = re.compile(r"\b(FROM|JOIN|INTO|UPDATE|USING)(\s+)([a-z_]+)\b(?!\.)")
_WRITES = re.compile(r"\b(INSERT\s+INTO|UPDATE\s+\w+(\s+AS)?(\s+\w+)?\s+SET|DELETE\s+FROM|LOCK\s+TABLE)\b")
_FOR_UPDATE = re.compile(r"\bFOR\s+(UPDATE|NO KEY UPDATE|SHARE|KEY SHARE)\b")
_COMMENT = re.compile(r"--[^\n]*")
_MS = re.compile(r"\bms\(([\w.]+ - [\w.]+)\)")
_MS_OF = {"postgres": r"CAST(date_part('epoch', \1) * 1000000 AS bigint) / 1000", "sqlite": r"(\1) / 1000"}
_OCTETS = re.compile(r"\boctets\(([\w., ]+)\)")
_LATE_KEY = re.compile(r"(?<!LEFT )\bJOIN \w+ (?:AS )?\w+ ON (?![\w.]+ = ANY\()(?:(?!JOIN|WHERE)[^()])*= ANY\(ARRAY\[")
_OCTETS_OF = {"postgres": "octet_length({})", "sqlite": "length(CAST({} AS BLOB))"}
# What a server has between one recovery from a crash and the next: its timeline and its last checkpoint.
# A checkpoint in the midst of an era begins another, which costs an answer only where a COMMIT broke meanwhile.
ERA = "left(pg_walfile_name(pg_current_wal_lsn()), 8) || (SELECT checkpoint_lsn FROM pg_control_checkpoint())"
TRANSACTION = f"(SELECT CAST(pg_current_xact_id() AS text) || ' ' || {ERA})"
_TRANSACTION_OF = {"postgres": TRANSACTION, "sqlite": "NULL"}
# How SQLite reads a text under `-- both`. Its one writer takes the place of row locks.
_SQLITE_READS = tuple(
    (re.compile(written), read)
    for written, read in (
        (r"(?<!LEFT )\bJOIN (\w+ (?:AS )?\w+ ON [\w.]+ = ANY\(ARRAY\[)", r"CROSS JOIN \1"),
        (r"= ANY\(ARRAY\[([\w.]+)\]\)", r"= \1"),
        (r"= ANY\(CAST\((:\w+) AS \w+\[\]\)\)", r"IN (SELECT value FROM json_each(\1))"),
        (r"\bunnest\(CAST\((:\w+) AS \w+\[\]\)\) AS (\w+) \((\w+)\)", r"(SELECT value AS \3 FROM json_each(\1)) AS \2"),
        (r"\bCAST\((:\w+) AS \w+\)", r"\1"),
        (r"\bCAST\(NULL AS \w+\)", "NULL"),
        (r"\s+FOR (UPDATE|NO KEY UPDATE|SHARE|KEY SHARE)( OF \w+)?( SKIP LOCKED)?\b", ""),
        (r"\binterval '1 millisecond'", "1000"),
        (r"\binterval '1 minute'", "60000000"),
        (r"\binterval '1 day'", "86400000000"),
        (r' COLLATE "C"', ""),
        (r" \+ 0(?![\w.])", ""),
        (r"\bgreatest\(", "max("),
        (r"\bleast\(", "min("),
    )
)


_HOT = "hot: "


class SqlFileError(Exception):
    """A `.sql` file breaks the rules."""


@dataclass(frozen=True)
class RowsParameter:
    """A parameter that is a list of rows: its column names and PostgreSQL types."""

    name: str
    columns: tuple[str, ...]
    types: tuple[str, ...]

    @property
    def table(self) -> str:
        """The temporary table that carries it on SQLite."""
        return "rows_" + "_".join((self.name, *self.columns))


@dataclass(frozen=True, eq=False)
class Query:
    """One named query in both dialects."""

    name: str
    description: str
    postgres_source: str
    sqlite_source: str
    filters: tuple[str, ...] = ()
    """Clauses put in place of `{filters}`, joined by AND; only `history.py` uses them."""

    def where(self, *clauses: str) -> Query:
        """Return the query with these clauses in place of its `{filters}`."""
        return _filtered(self, clauses)

    @cached_property
    def parameters(self) -> frozenset[str]:
        """Names that a caller must pass."""
        return _parameters(self._filled(self.postgres_source))

    @cached_property
    def writes(self) -> bool:
        """Whether it changes or locks anything."""
        return any(_WRITES.search(s) or _FOR_UPDATE.search(s) for s in (self.postgres_source, self.sqlite_source))

    @cached_property
    def hot(self) -> bool:
        """Whether it runs on the connections that write: what a server lives by must not wait for people's lists."""
        return self.writes or _HOT in self.description

    @cached_property
    def postgres(self) -> tuple[str, tuple[tuple[str, int | None], ...]]:
        """The text with `$n`, and what each of them is: a parameter, or a column (by index) of a rows parameter."""
        return _postgres_text(self._filled(self.postgres_source))

    @cached_property
    def sqlite(self) -> tuple[tuple[str, ...], tuple[RowsParameter, ...]]:
        """The statements in order, and the rows parameters they read."""
        source = self._filled(self.sqlite_source)
        lists = {p.name: p for p in _rows_parameters(source)}
        text = _ROWS.sub(lambda m: f"temp.{lists[m[1]].table} AS {m[3]}", source)
        return tuple(s for part in text.split(";") if (s := part.strip())), tuple(lists.values())

    def _filled(self, source: str) -> str:
        return source.replace("{filters}", " AND ".join(self.filters) or "true")


@lru_cache(maxsize=500)
def _filtered(query: Query, clauses: tuple[str, ...]) -> Query:
    """Return the same for the same: its texts are made once. No more are kept: callers choose the clauses."""
    return replace(query, filters=clauses)


@cache
def union(*parts: Query) -> Query:
    """Return one query of the rows of several that only read."""
    return Query(
        name=" ".join(query.name for query in parts),
        description="\n".join(query.description for query in parts),
        postgres_source="\nUNION ALL\n".join(f"(\n{query.postgres_source}\n)" for query in parts),
        sqlite_source="\nUNION ALL\n".join(f"SELECT * FROM (\n{query.sqlite_source}\n)" for query in parts),
    )


class Queries:
    """The queries of one file, as attributes; a server that starts does not wait for those it may never run."""

    def __init__(self, path: Path, text: str) -> None:
        self.path = path
        self._bodies = _bodies(text, path.name)

    def __getattr__(self, name: str) -> Query:
        body = self._bodies.get(name)
        if body is None:
            raise AttributeError(f"{self.path.name} has no query named {name}")
        query = _query(name, body, self.path.name)
        setattr(self, name, query)
        return query

    def __iter__(self) -> Iterator[Query]:
        return (getattr(self, name) for name in self._bodies)


def load(step: str) -> Queries:
    """Return the queries beside the module `step` (its `__file__`): `claim.py` has `claim.sql`."""
    path = Path(step).with_suffix(".sql")
    return Queries(path, path.read_text(encoding="utf-8"))


def _bodies(text: str, origin: str) -> dict[str, str]:
    _, *parts = _NAME.split(text)
    bodies: dict[str, str] = {}
    for line, body in zip(parts[::2], parts[1::2], strict=True):
        names = line.split()
        first, *odd = _ONE_OF.split(body)
        choices = [words.split("|") for words in odd[::2]]
        if any(len(words) != len(names) for words in choices):
            raise SqlFileError(f"{origin}: {line}: each {{…|…}} needs as many words as there are names")
        for index, name in enumerate(names):
            if name in bodies:
                raise SqlFileError(f"{origin}: {name} stands twice")
            pairs = zip(choices, odd[1::2], strict=True)
            bodies[name] = first + "".join(words[index] + after for words, after in pairs)
    if not bodies:
        raise SqlFileError(f"{origin}: no `-- name:` in it")
    return bodies


def _query(name: str, body: str, origin: str) -> Query:
    marks = list(_DIALECT.finditer(body))
    texts = {
        mark[1]: _COMMENT.sub("", body[mark.end() : following.start() if following else None]).strip()
        for mark, following in zip(marks, [*marks[1:], None], strict=False)
    }
    description = " ".join(line.strip("- ") for line in body[: marks[0].start() if marks else None].split("\n")).strip()
    if not description:
        raise SqlFileError(f"{origin}: {name} has no description")
    found = sorted(mark[1] for mark in marks)
    if found not in (["both"], ["postgres", "sqlite"]):
        raise SqlFileError(f"{origin}: {name} needs `-- postgres` and `-- sqlite`, or `-- both`; it has {found}")
    if "both" in texts:
        if _LATE_KEY.search(texts["both"]):
            raise SqlFileError(f"{origin}: {name}: in a join, the `= ANY(ARRAY[…])` comes first")
        texts = {"postgres": texts["both"], "sqlite": _for_sqlite(texts["both"])}
    postgres, sqlite = (_expanded(texts[dialect], dialect) for dialect in _OCTETS_OF)
    declared = {m[1]: m[2] for m in _ROWS.finditer(postgres)}
    if unknown := {m[1] for t in (postgres, sqlite) for m in _ROWS_AGAIN.finditer(t)} - declared.keys():
        raise SqlFileError(f"{origin}: {name}: the columns of rows(:{min(unknown)}) stand nowhere under `-- postgres`")
    postgres, sqlite = (_ROWS_AGAIN.sub(lambda m: f"rows(:{m[1]},{declared[m[1]]})", t) for t in (postgres, sqlite))
    if "::" in postgres:
        raise SqlFileError(f"{origin}: {name}: write CAST(x AS t), two colons collide with :name")
    if _parameters(postgres) != _parameters(sqlite):
        odd = sorted(_parameters(postgres) ^ _parameters(sqlite))
        raise SqlFileError(f"{origin}: {name}: the dialects take different parameters: {', '.join(odd)}")
    if {p.name: p.columns for p in _rows_parameters(postgres)} != {p.name: p.columns for p in _rows_parameters(sqlite)}:
        raise SqlFileError(f"{origin}: {name}: the dialects take different rows")
    return Query(name=name, description=description, postgres_source=postgres.rstrip("; \n"), sqlite_source=sqlite)


def _for_sqlite(text: str) -> str:
    for written, read in _SQLITE_READS:
        text = written.sub(read, text)
    return text


def in_ms(text: str, dialect: str) -> str:
    """Return the text with `ms(a - b)` as the dialect has it."""
    return _MS.sub(_MS_OF[dialect], text)


def _expanded(text: str, dialect: str) -> str:
    def total(match: re.Match[str]) -> str:
        lengths = (_OCTETS_OF[dialect].format(name) for name in match[1].split(", "))
        return "(" + " + ".join(f"coalesce({length}, 0)" for length in lengths) + ")"

    text = _OCTETS.sub(total, in_ms(text, dialect))
    return text.replace("transaction()", f"{_TRANSACTION_OF[dialect]} AS transaction_name")


def _parameters(text: str) -> frozenset[str]:
    return frozenset(_PARAMETER.findall(text)) - {"now"}


def _rows_parameters(text: str) -> list[RowsParameter]:
    found: dict[str, RowsParameter] = {}
    for name, columns, _alias in _ROWS.findall(text):
        pairs = [column.split(maxsplit=1) for column in columns.split(",")]
        rows = RowsParameter(name, tuple(p[0] for p in pairs), tuple(p[1].strip() for p in pairs))
        if found.setdefault(name, rows) != rows:
            raise SqlFileError(f"rows(:{name}, …) is declared twice with different columns")
    return list(found.values())


def _postgres_text(source: str) -> tuple[str, tuple[tuple[str, int | None], ...]]:
    slots: dict[tuple[str, int | None], int] = {}

    def slot(name: str, column: int | None = None) -> str:
        return f"${slots.setdefault((name, column), len(slots) + 1)}"

    def unnest(match: re.Match[str]) -> str:
        rows = next(p for p in _rows_parameters(match[0]))
        arrays = ", ".join(f"CAST({slot(rows.name, i)} AS {kind}[])" for i, kind in enumerate(rows.types))
        return f"unnest({arrays}) AS {match[3]}({', '.join(rows.columns)})"

    text = _ROWS.sub(unnest, source)
    text = _PARAMETER.sub(lambda m: f"{SCHEMA}.clock()" if m[1] == "now" else slot(m[1]), text)
    return qualify(text), tuple(slots)


def qualify(text: str) -> str:
    """Put the names of our tables into our schema, where a table can stand."""
    return _TABLE.sub(lambda m: f"{m[1]}{m[2]}{SCHEMA}.{m[3]}" if m[3] in TABLES else m[0], text)
