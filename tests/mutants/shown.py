"""Guards of what is shown: redaction holds neither the event loop nor the answers of other tenants."""

from __future__ import annotations

from tests.mutants.mutant import Edit, Mutant, sql

SHOWN = "tests/server/test_shown.py::test_"
LOOP = f"{SHOWN}rel_t9_no_arguments_are_redacted_on_the_event_loop[sqlite]"
REFUSED = "tests/config/test_refused.py::test_rel_t17_a_refused_secret_is_not_shown"
OPENED = "tests/db/test_sqlite.py::test_rel_t17_a_url_that_cannot_be_opened_keeps_its_password"
HELD = "H5: no request holds the event loop"

MUTANTS = (
    Mutant(
        "refused-urls-shown-whole",
        (Edit("config/redact.py", "_TO_LAST_AT.sub(lambda", "_URL.sub(lambda"),),
        (
            f"{REFUSED}[WINDLASS_URL-u:canary7hunter2@x]",
            f"{REFUSED}[WINDLASS_URL-canary7hunter2@x]",
        ),
        "T17: who and what stands before the @ of a URL is not shown, however wrongly it is written",
    ),
    Mutant(
        "ports-of-databases-shown",
        (Edit("db/open.py", '"its port is not', 'f"its port {port} is not'),),
        (f"{OPENED}[postgresql://u:hunter2]",),
        "T17: what stands where a port should may be a password",
    ),
    Mutant(
        "unreadable-urls-taken",
        (Edit("config/check.py", "        _readable(key, value_of(settings, key), sources)\n", "        pass\n"),),
        (f"{REFUSED}[WINDLASS_DATABASE_URL-postgresql://u:canary7hunter2\\u2100@x]",),
        "T17: a URL that cannot be read is refused before its text is in a trace",
    ),
    Mutant(
        "workers-tell-passwords",
        (
            Edit("worker/httplink.py", "any_form(str(self._client.base_url))", "self._client.base_url"),
            Edit("worker/httplink.py", "any_form(str(answer.url))", "answer.url"),
        ),
        (
            "tests/worker/test_links.py::test_rel_t17_the_password_of_a_url_is_in_no_message[broken]",
            "tests/worker/test_links.py::test_rel_t17_the_password_of_a_url_is_in_no_message[not ours]",
        ),
        "T17: a worker's messages name its server without the password",
    ),
    Mutant(
        "much-shown-in-one-go",
        (Edit("server/shown.py", "(PIECE_BYTES if is_large else TURN_BYTES)", "PIECE_BYTES"),),
        (f"{SHOWN}others_get_their_turn_between_items",),
        HELD,
    ),
    Mutant(
        "all-shown-in-one-turn-of-the-thread",
        (Edit("server/shown.py", "(PIECE_BYTES if is_large else TURN_BYTES)", "(2**30 if is_large else TURN_BYTES)"),),
        (f"{SHOWN}rel_t9_a_list_takes_few_turns",),
        "T9: a tenant waits for one piece of another's",
    ),
    Mutant(
        "redaction-first-come-first-served",
        (Edit("server/shown.py", "else showing.turn(call.tenant, call", 'else showing.turn("", call'),),
        (f"{SHOWN}rel_t9_a_tenant_with_much_to_show_delays_another_by_one_item",),
        "T9: tenants take turns in the thread",
    ),
    Mutant(
        "redaction-without-bound",
        (Edit("server/shown.py", "showing.sure_turn(call.tenant) if acted else", "showing.sure_turn(call.tenant) or"),),
        (f"{SHOWN}rel_t9_large_items_of_a_tenant_are_bounded",),
        "T9: a tenant has so many large items under way",
    ),
    Mutant(
        "done-and-refused",
        (Edit("server/shown.py", "showing.sure_turn(call.tenant) if acted else", ""),),
        (f"{SHOWN}rel_t9_large_items_of_a_tenant_are_bounded",),
        "T9: what was done is told",
    ),
    Mutant(
        "acts-without-room-to-show",
        (Edit("server/shown.py", "if is_large else nullcontext()", "if item is call else nullcontext()"),),
        (f"{SHOWN}rel_t9_an_act_that_could_not_be_shown_is_refused_before_it_is_done[sqlite]",),
        "T9: a call is refused before it acts",
    ),
    Mutant(
        "acts-without-room-for-what-is-kept",
        (Edit("server/jobs.py", "kept.get(call.job_id, 0)", "0"),),
        (f"{SHOWN}rel_t9_an_act_that_could_not_be_shown_is_refused_before_it_is_done[sqlite]",),
        "T9: a call is refused before it acts, whatever makes its answer large",
    ),
    Mutant(
        "progress-without-weight",
        (sql("checkpoints", "sizes", " + coalesce(length(CAST(c.progress AS BLOB)), 0)", "", "sqlite"),),
        (f"{SHOWN}rel_t9_an_act_that_could_not_be_shown_is_refused_before_it_is_done[sqlite]",),
        "T9: what is kept of a job is weighed whole",
        only="sqlite",
    ),
    Mutant(
        "acts-that-make-large",
        (Edit("server/shown.py", " + ADDED_BYTES", ""),),
        (f"{SHOWN}rel_t9_large_items_of_a_tenant_are_bounded",),
        "T9: what an act may add is weighed before it",
    ),
    Mutant(
        "checkpoints-redacted-on-the-loop",
        (Edit("server/shown.py", "_is_large((item, beside))", "_is_large(item)"),),
        (LOOP,),
        HELD,
    ),
    Mutant(
        "differences-redacted-on-the-loop",
        (
            Edit(
                "server/shown.py",
                "[text async for text in in_turns(call, texts, redacted)]",
                "[redacted(call, text) for text in texts]",
            ),
        ),
        (LOOP,),
        HELD,
    ),
    Mutant(
        "payloads-redacted-for-the-audit",
        (Edit("server/recurring.py", "shown_schedule(call, made, arguments=False)", "shown_schedule(call, made)"),),
        (LOOP,),
        HELD,
    ),
)
