"""Fragments of SQL are texts like others: stored as they are, found as they are, and never part of a statement."""

from __future__ import annotations

import httpx2
import pytest

pytestmark = pytest.mark.one_kind

FRAGMENTS = [
    *("'", "''", "' OR '1'='1", "' OR 1=1 --", "'; DROP TABLE job; --", "'); DELETE FROM queue; --", "admin'--"),
    *('"', '" OR ""="', '"; DROP TABLE "job"; --', "`", "\\'", "\\", "\\\\'", "%27", "%", "_", "%%", "a%' --"),
    *("--", "-- -", "/*", "*/", "/**/OR/**/1=1", "#", ";", ";;", "; SELECT pg_sleep(9)", "' || pg_sleep(9) || '"),
    *("$1", "$$", "$$; DROP TABLE job; $$", ":task", ":limit", "?", "?1", "@p", "{0}", "%s", "%(task)s", "${x}"),
    *("NULL", "null", "0", "1 OR 1=1", "1; ATTACH DATABASE 'x' AS y", "' UNION SELECT token FROM api_key --"),
    *("E'\\047'", "U&'\\0027'", "CHAR(39)", "x'27'", "' COLLATE nocase --", "ＯＲ １＝１", "ʼ", "’; DROP TABLE job"),
]


async def test_rel_t10_a_fragment_of_sql_is_a_text(client: httpx2.AsyncClient) -> None:
    """A filter finds the jobs that bear the very text, and no others; nothing else happens."""
    assert 50 <= len(FRAGMENTS) == len(set(FRAGMENTS))
    names = [text.replace("/", ".").replace(",", ".") for text in FRAGMENTS]
    jobs = [
        {"task": name, "queue": name, "tags": [name], "payload": text}
        for name, text in zip(names, FRAGMENTS, strict=True)
    ]
    stored = await client.post("/jobs/batch", json={"jobs": jobs})
    assert 201 == stored.status_code, stored.text
    ids = [job["id"] for job in stored.json()["jobs"]]

    for name, text, job_id in zip(names, FRAGMENTS, ids, strict=True):
        for field in ("task", "tag", "queue"):
            found = await client.get("/jobs", params={field: name})
            assert [job_id] == [job["id"] for job in found.json()["jobs"]], (field, name)
        looked = (await client.get(f"/jobs/{job_id}")).json()
        assert (name, [name], text) == (looked["task"], looked["tags"], looked["payload"])
