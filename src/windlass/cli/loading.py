"""`windlass schedules import jsonl`: schedules by the million, a JSON object a line.

Through a server a thousand at a time; with `--database` straight into the database, which is many times as fast.
Both take the file in pieces, each stored whole or not at all, and pass over names that are there: whoever was
interrupted, or has corrected a line, imports the same file again.
"""

from __future__ import annotations

import asyncio
import re
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import IO, TYPE_CHECKING

import click
import msgspec

from windlass.cli.calls import Server, asks_server
from windlass.cli.shown import printable
from windlass.cli.values import DATABASE_URL, opened_file
from windlass.config import Settings
from windlass.config.redact import whole_url as without_password
from windlass.errors import InvalidInput, WindlassError
from windlass.ids import Ids
from windlass.wire.schedules import ScheduleRequest

if TYPE_CHECKING:
    from windlass.queue.schedule import NewSchedule

BATCH = 1000
BATCH_BYTES = 4 * 1024 * 1024
"""Half of what a server takes at once."""
CHUNK = 20_000
"""Lines that are stored together, straight into a database."""
CHUNK_BYTES = 64 * 1024 * 1024
TOLD_S = 2.0
"""How often progress is told."""
DEFAULT_TENANT = "default"
Line = tuple[int, bytes]
"""Its number, and what it has."""
_PLACE = re.compile(r"schedules\[([0-9]+)\]")


class Tally:
    """What has been done so far, told on stderr now and then."""

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._begun_at = self._told_at = clock()
        self.stored_count = self.replaced_count = self.skipped_count = 0

    def add(self, *, stored: int, replaced: int = 0, skipped: int = 0) -> None:
        """Count a piece that was stored."""
        self.stored_count += stored
        self.replaced_count += replaced
        self.skipped_count += skipped
        if self._clock() - self._told_at >= TOLD_S:
            self._told_at = self._clock()
            click.echo(f"… {self}", err=True)

    def __str__(self) -> str:
        spent_s = max(self._clock() - self._begun_at, 1e-3)
        total = self.stored_count + self.replaced_count + self.skipped_count
        replaced = f" {self.replaced_count:,} replaced," if self.replaced_count else ""
        return (
            f"{self.stored_count:,} schedules stored,{replaced} {self.skipped_count:,} were there already; "
            f"{spent_s:.1f} s, {total / spent_s:,.0f} lines a second"
        )


@click.command()
@click.argument("file", type=click.Path(allow_dash=True))
@click.option("--replace", is_flag=True, help="Give schedules that are there the settings of the file.")
@click.option("--database", type=DATABASE_URL, metavar="URL", help="Store straight into this database: for millions.")
@asks_server
def jsonl(server: Server, file: str, replace: bool, database: str | None) -> None:
    """Make a schedule of each line of a file; names that are there are passed over, so it can be run again.

    A line is what POST /schedules takes: {"name": "a", "task": "report", "cron": "30 2 * * *", "payload": {"n": 1}}

    Example: windlass schedules import jsonl schedules.jsonl --database postgresql://localhost/jobs
    """
    if replace and database is not None:
        raise click.UsageError("--replace goes through a server. Leave --database out.")
    shown = "stdin" if file == "-" else file
    tally = Tally()
    with opened_file(file) as lines:
        try:
            if database is None:
                _through_server(server, lines, tally, shown=shown, replace=replace)
            else:
                asyncio.run(_into_database(database, server.settings, lines, tally=tally, shown=shown))
        except (WindlassError, KeyboardInterrupt):
            click.echo(f"Stopped: {tally}. Import the file again to go on; what is stored is passed over.", err=True)
            raise
    click.echo(f"{tally}; {server.url if database is None else without_password(database)}.")


def _through_server(server: Server, lines: IO[bytes], tally: Tally, *, shown: str, replace: bool) -> None:
    how = {"replace_existing": True} if replace else {"skip_existing": True}
    for piece in pieces(lines, count=BATCH, size=BATCH_BYTES):
        asked = [_object(line, shown) for line in piece]
        try:
            made = server.post("/schedules/batch", {"schedules": asked, **how})["schedules"]
        except WindlassError as error:
            raise _at_line(error, piece, shown) from None
        replaced = sum(schedule["replaced"] for schedule in made)
        tally.add(stored=len(made) - replaced, replaced=replaced, skipped=len(piece) - len(made))


async def _into_database(url: str, settings: Settings, lines: Iterable[bytes], *, tally: Tally, shown: str) -> None:
    # Only this path pays for the store.
    from windlass.cli.database import opened
    from windlass.db.migrate import check_schema
    from windlass.queue import schedules

    rest = pieces(lines, count=CHUNK, size=CHUNK_BYTES)
    async with opened(url, role="client") as db:
        await check_schema(db)
        reading = Reading(settings, Ids(db.now))

        def read_piece() -> list[NewSchedule]:
            return [reading.read(line, shown) for line in next(rest, [])]

        # The next piece is read while the database stores this one.
        coming = asyncio.create_task(asyncio.to_thread(read_piece))
        try:
            while piece := await coming:
                coming = asyncio.create_task(asyncio.to_thread(read_piece))
                made = await schedules.load(db, piece)
                tally.add(stored=made, skipped=len(piece) - made)
        finally:
            await asyncio.gather(coming, return_exceptions=True)


class Reading:
    """Turns lines into schedules to store, by the rules of a server with the same settings."""

    def __init__(self, settings: Settings, ids: Ids) -> None:
        from windlass.server.decoding import BodyDecoder

        self._settings = settings
        self._decoder = BodyDecoder(ScheduleRequest)
        self._ids = ids

    def read(self, line: Line, shown: str) -> NewSchedule:
        """Return the schedule of a line; InvalidInput names the line and the field that cannot be accepted."""
        from windlass.engine.planned import new_schedule

        number, text = line
        try:
            asked: ScheduleRequest = self._decoder.decode(text)
            for field in ("replace_existing", "dry_run"):
                if getattr(asked, field):
                    raise InvalidInput(field, "it is for a server. Leave it out, or leave --database out.")
            tenant = asked.tenant or DEFAULT_TENANT
            return new_schedule(asked, self._settings, schedule_id=self._ids.new(), tenant=tenant)
        except InvalidInput as error:
            raise InvalidInput(f"{shown}:{number}", str(error)) from None


def pieces(lines: Iterable[bytes], *, count: int, size: int) -> Iterator[list[Line]]:
    """Yield lines that are not empty with their numbers, so many at a time, and not many more bytes."""
    piece: list[Line] = []
    held = 0
    for number, line in enumerate(lines, 1):
        text = line.strip()
        if not text:
            continue
        if piece and (len(piece) == count or held + len(text) > size):
            yield piece
            piece, held = [], 0
        piece.append((number, text))
        held += len(text)
    if piece:
        yield piece


def _object(line: Line, shown: str) -> dict[str, msgspec.Raw]:
    number, text = line
    try:
        return msgspec.json.decode(text, type=dict[str, msgspec.Raw])
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        why = f"it is no schedule as a JSON object: {printable(str(error))}. Correct it."
        raise InvalidInput(f"{shown}:{number}", why) from None


def _at_line(error: WindlassError, piece: Sequence[Line], shown: str) -> WindlassError:
    """Return the error with the line that it is about, if it names one."""
    place = _PLACE.search(str(error))
    if not isinstance(error, InvalidInput) or place is None or int(place[1]) >= len(piece):
        return error
    number, _ = piece[int(place[1])]
    said = str(error).replace(place[0], "", 1).lstrip(".")
    return type(error)(f"{shown}:{number}", said)
