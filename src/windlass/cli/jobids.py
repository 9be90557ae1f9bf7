"""Ids of jobs on the command line: whole, or shortened to an end that no other job has.

Ids of one moment begin alike, so the end is what tells them apart. A server looks for it among its newest jobs only.
"""

from __future__ import annotations

import re
import uuid
from collections.abc import Iterable
from typing import Any

import click

from windlass.cli.calls import Server
from windlass.cli.shown import when
from windlass.errors import NotFound

LOOKED_AT = "the 20,000 newest jobs that wait or run, are timed, done, or dead"
_END = re.compile(r"(?:.*(?:…|\.\.\.))?([0-9a-f-]{4,36})", re.IGNORECASE)


class JobIdType(click.ParamType[str]):
    """The id of a job, or the end of one; as a value, the id as it is written, or the end."""

    name = "id"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> str:
        """Return the id or the end."""
        try:
            return str(uuid.UUID(str(value)))
        except ValueError:
            found = _END.fullmatch(str(value))
        if found is None:
            self.fail(f"{value!r} is neither the id of a job nor at least 4 digits of its end.", param, ctx)
        return found[1].lower()


JOB_ID = JobIdType()


def whole_ids(server: Server, named: Iterable[str]) -> list[str]:
    """Return the ids that are meant; NotFound if no job ends so, a usage error with the candidates if several do."""
    return [text if len(text) == 36 else _whole(server, text) for text in named]


def whole_id(server: Server, named: str) -> str:
    """Return the id that is meant, as `whole_ids` does."""
    return whole_ids(server, [named])[0]


def _whole(server: Server, end: str) -> str:
    jobs = server.get("/jobs", id_end=end)["jobs"]
    if not jobs:
        raise NotFound(f"No job ends in {end}, of {LOOKED_AT}. Give the whole id.")
    if len(jobs) > 1:
        found = "".join(f"\n  {job['id']}  {job['task']}  {job['state']}  {when(job['created_at'])}" for job in jobs)
        raise click.UsageError(f"Several jobs end in {end}. Give more of the one that is meant:{found}")
    return str(jobs[0]["id"])
