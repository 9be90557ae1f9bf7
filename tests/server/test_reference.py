"""The document and the reference page say what a reader needs: what a field means, and where its type stands."""

from __future__ import annotations

import re

from windlass.server.openapi import document
from windlass.server.reference import page
from windlass.server.routes import ROUTES
from windlass.server.sentences import sentences
from windlass.wire.jobs import JobRequest
from windlass.wire.people import WorkersQuery


def test_what_stands_under_a_field_is_in_the_document() -> None:
    """Of bodies and answers beside the field, of queries beside the parameter."""
    made = document(ROUTES)

    job = made["components"]["schemas"]["JobRequest"]["properties"]
    queried = {parameter["name"]: parameter for parameter in made["paths"]["/api/v1/events"]["get"]["parameters"]}

    assert "Null: no limit." == job["timeout_seconds"]["description"]
    assert queried["job_id"]["description"] == "Only of this job."
    assert "description" not in queried["job_id"]["schema"]


def test_fields_of_a_base_are_explained_too() -> None:
    """A struct has what it says itself and what those say that it is made from."""
    assert "`next_cursor` of the page before." == sentences(WorkersQuery)["cursor"]
    assert set(sentences(JobRequest)) <= set(JobRequest.__struct_fields__)


def test_links_of_the_document_lead_to_operations_that_take_them() -> None:
    """From a submitted job to all that can be asked of it, from a claim to its reports and nothing else."""
    made = document(ROUTES)
    operations = {operation["operationId"]: operation for path in made["paths"].values() for operation in path.values()}

    submitted = operations["post_jobs"]["responses"]["201"]["links"]
    claimed = operations["post_jobs_claim"]["responses"]["200"]["links"]

    assert {"get_jobs_id", "delete_jobs_id", "post_jobs_id_pause"} <= set(submitted)
    assert {f"post_jobs_id_{verb}" for verb in "heartbeat complete fail release snooze".split()} == set(claimed)
    for link in (*submitted.values(), *claimed.values()):
        taken = {parameter["name"] for parameter in operations[link["operationId"]]["parameters"]}
        assert set(link["parameters"]) <= taken


def test_links_of_the_page_lead_somewhere() -> None:
    """Every mark that is linked is there, inside of what a browser opens for it."""
    made = page(document(ROUTES))

    linked = set(re.findall(r'href="#([^"]+)"', made))

    assert linked <= set(re.findall(r'id="([^"]+)"', made))
    assert not re.search(r"<details id=|<summary id=", made)


def test_refusals_that_all_operations_share_are_told_once() -> None:
    """With each operation stand the answers that are its own."""
    made = page(document(ROUTES))

    assert 1 == made.count("<td>415</td>")
    assert made.count("<td>409</td>") > 10
