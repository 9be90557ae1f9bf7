"""Guards of what is shown: redaction holds neither the event loop nor the answers of other tenants."""

from __future__ import annotations

from tests.mutants.mutant import Edit, Mutant

SHOWN = "tests/server/test_shown.py::test_"
LOOP = f"{SHOWN}rel_t9_no_arguments_are_redacted_on_the_event_loop[sqlite]"
HELD = "H5: no request holds the event loop"

MUTANTS = (
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
        (Edit("server/shown.py", "if _is_large(item) else nullcontext()", "if item is call else nullcontext()"),),
        (f"{SHOWN}rel_t9_an_act_that_could_not_be_shown_is_refused_before_it_is_done[sqlite]",),
        "T9: a call is refused before it acts",
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
