"""Guards of the HTTP door: who may call, whose things they are, what a body may be, who hears an answer."""

from __future__ import annotations

from tests.mutants.mutant import Edit, Mutant

FRAME = "tests/server/test_frame.py::test_"
JOBS = "tests/server/test_jobs.py::test_"
WORK = "tests/server/test_work.py::test_"
PEOPLE = "tests/server/test_people.py::test_"
MATRIX = "tests/server/test_matrix.py::test_"
BAD = "tests/server/test_bad_input.py::test_"

MUTANTS = (
    Mutant(
        "lists-take-no-turns",
        (Edit("server/app.py", "            if ready.is_list:\n", "            if False:\n"),),
        ("tests/server/test_frame.py::test_rel_t15_lists_of_one_tenant_leave_turns_to_others",),
        "T15: lists of tenants take turns",
    ),
    Mutant(
        "waiting-calls-without-cap",
        (Edit("engine/fair.py", "if self._counts[party] >= most:", "if self._counts[party] < 0:"),),
        ("tests/server/test_frame.py::test_rel_t15_calls_that_wait_have_a_cap",),
        "T15: calls that wait are counted by tenant and key",
    ),
    Mutant(
        "door-without-scopes",
        (Edit("server/app.py", "            _permit(call.principal, route)\n", ""),),
        (f"{MATRIX}rel_t4_a_route_answers_only_its_scopes[sqlite-reader]", f"{FRAME}scope_comes_before_the_object"),
        "T4: a key does only what its scopes say",
    ),
    Mutant(
        "route-without-scope-starts",
        (Edit("server/route.py", "            _check_scope(route)\n", ""),),
        (f"{FRAME}rel_t4_a_route_without_a_scope_does_not_start",),
        "T4: a server does not start with a route that declares no scope",
    ),
    Mutant(
        "tenant-named-by-anybody",
        (
            Edit(
                "server/call.py",
                'if self.principal.tenant is not None or "admin" not in self.principal.scopes:',
                'if self.principal.tenant == "":',
            ),
        ),
        (f"{MATRIX}rel_t6_a_tenant_in_the_query_is_refused", f"{FRAME}only_a_key_above_tenants_names_one"),
        "T6: the tenant comes from the key alone",
    ),
    Mutant(
        "another-tenant-is-seen",
        (Edit("server/call.py", "if self.principal.tenant not in (None, name):", 'if name == "":'),),
        (f"{PEOPLE}tenants_are_made_paused_and_removed",),
        "T5: another tenant is like one that never was",
    ),
    Mutant(
        "figures-of-all-for-a-tenant",
        (Edit("server/whole.py", "    call.require_no_tenant()\n", ""),),
        (f"{MATRIX}lists_never_show_another_tenant",),
        "N1: figures over all tenants are for keys above them",
    ),
    Mutant(
        "body-without-end",
        (Edit("server/bodies.py", "        if size > limit:\n", "        if size > limit * 1000:\n"),),
        (f"{FRAME}a_large_body_is_refused_by_its_length_and_while_it_comes",),
        "T9: a body is counted while it comes",
    ),
    Mutant(
        "compressed-body-taken",
        (Edit("server/bodies.py", 'not in ("identity", "")', "in ()"),),
        (
            f"{BAD}what_is_not_plain_json_is_415[headers4-sqlite]",
            f"{FRAME}a_body_must_be_declared_as_plain_json[headers4-415]",
        ),
        "T9: compressed bodies are refused",
    ),
    Mutant(
        "query-name-twice",
        (Edit("server/queries.py", "if len(found) != len(pairs):", "if len(found) > len(pairs):"),),
        (f"{FRAME}a_bad_query_is_refused[limit=1&limit=2]",),
        "P1: a name stands once in a query",
    ),
    Mutant(
        "jobs-for-nobody",
        (Edit("server/call.py", "            await undo(working.result())\n", "            pass\n"),),
        (f"{FRAME}what_is_ready_for_a_caller_that_has_just_gone_is_given_back",),
        "L13: what is assigned to a caller that has gone is given back",
    ),
    Mutant(
        "waits-for-nobody",
        (Edit("server/call.py", "                working.cancel()\n", ""),),
        (f"{FRAME}a_wait_ends_when_the_caller_has_gone",),
        "L6: a claim ends when its caller has gone",
    ),
    Mutant(
        "stale-report-is-fine",
        (Edit("server/work.py", "if answer.status is Status.STALE:", "if answer.status is None:"),),
        (f"{WORK}rel_t7_only_the_holder_ends_a_lease",),
        "R3: a stale report is 409",
    ),
    Mutant(
        "unfenced-without-being-told",
        (
            Edit(
                "server/work.py",
                "if named.fence is UNSET and call.settings.api.allow_unfenced:",
                "if named.fence is UNSET:",
            ),
        ),
        (f"{WORK}rel_t7_only_the_holder_ends_a_lease",),
        "L12: a report without fence is refused unless the settings allow it",
    ),
    Mutant(
        "session-ended-by-any-worker",
        (Edit("server/workers.py", "if asked.session is None and (", "if asked is None and ("),),
        (f"{PEOPLE}a_worker_is_drained_and_removed",),
        "T7: a worker ends only the session whose id it knows",
    ),
    Mutant(
        "acts-without-audit",
        (Edit("server/app.py", "            await acted.keep(call, route, answer.content)\n", "            pass\n"),),
        (f"{PEOPLE}acts_are_kept_in_the_audit",),
        "X10: every act of an operator is kept",
    ),
    Mutant(
        "secrets-shown",
        (Edit("server/shown.py", "hidden = call.redactor.value(value)", "hidden = value"),),
        (f"{JOBS}rel_t17_secrets_in_arguments_are_not_shown",),
        "N6: secrets do not appear in answers",
    ),
    Mutant(
        "claim-answer-without-end",
        (Edit("engine/translate.py", "if size > ANSWER_BYTES and index:", "if size < 0:"),),
        (f"{WORK}the_answer_to_a_claim_is_bounded",),
        "S9: the answer to a claim is bounded",
    ),
    Mutant(
        "two-keys-for-one-job",
        (Edit("server/jobs.py", "if asked.idempotency_key not in (None, header):", 'if header == "":'),),
        (f"{JOBS}an_idempotency_key_names_the_work",),
        "S6: header and body name the same key",
    ),
)
