"""Guards of the line of waiting claims: what is looked at in one go, whose turn it is, who is answered when."""

from __future__ import annotations

from tests.mutants.mutant import Edit, Mutant

BOUNDS = "tests/engine/test_dispatch_bounds.py::test_"
DISPATCH = "tests/engine/test_dispatch.py::test_"
FAIR = "tests/engine/test_dispatch_fair.py::test_"
OTHERS_FIRST = "                continue  # others are first: it is looked for when its turn comes\n"

MUTANTS = (
    Mutant(
        "a-round-looks-at-every-lane-for-every-claim",
        (Edit("engine/dispatch.py", "if looked[group.tenant] >= most or total >= MOST_LOOKED:", "if total < 0:"),),
        (f"{BOUNDS}rel_t15_a_round_is_as_long_for_many_tenants_as_for_one[sqlite]",),
        "T9: what is looked at in a round is bounded",
    ),
    Mutant(
        "a-round-as-long-as-there-are-tenants",
        (Edit("engine/dispatch.py", ">= most or total >= MOST_LOOKED:", ">= most:"),),
        (f"{BOUNDS}rel_t15_a_round_is_as_long_for_many_tenants_as_for_one[sqlite]",),
        "T15: the bound of a round holds for all tenants together",
    ),
    Mutant(
        "costly-claims-of-one-tenant-first",
        (Edit("engine/dispatch.py", "if looked[group.tenant] >= most or total", "if total"),),
        (f"{BOUNDS}rel_t15_cheap_claims_do_not_wait_for_the_costly_ones_of_another_tenant[sqlite]",),
        "T15: tenants share what a round looks at",
    ),
    *(
        Mutant(
            f"no-{kind}-look-for-very-many-tenants",
            (Edit(f"engine/{file}.py", old, new),),
            (f"{BOUNDS}rel_t15_each_of_very_many_tenants_is_looked_for[sqlite-{case}]",),
            "T15: the share of a tenant is never nothing",
        )
        for kind, file, old, new, case in (
            ("free", "dispatch", "for group in groups}), 1), 1)", "for group in groups}), 1), 0)", "None"),
            ("limited", "limited", "// len(tenants), 1)", "// len(tenants), 0)", "5"),
        )
    ),
    Mutant(
        "idle-claims-are-looked-for-again-and-again",
        (Edit("engine/dispatch.py", "after=-1 if group.has_free else group.seen", "after=-1"),),
        (f"{BOUNDS}rel_t9_who_has_nothing_to_do_is_looked_for_among_new_lanes_only[sqlite]",),
        "T9: an idle claim costs nothing while no lane comes",
    ),
    Mutant(
        "a-changed-lane-is-not-new",
        (Edit("engine/hot.py", "if self._placed.get(lane.id) != lane)", "if lane is None)"),),
        (f"{BOUNDS}a_lane_that_has_changed_is_a_new_one",),
        "no lost wake-up: a lane that was limited may hold work for who was idle",
    ),
    Mutant(
        "a-look-in-one-go",
        (Edit("engine/hot.py", "list(islice(left, PORTION))", "list(left)"),),
        (f"{BOUNDS}rel_t9_a_look_is_taken_over_in_portions[sqlite]",),
        "T9: a look at many lanes leaves turns to others",
    ),
    Mutant(
        "a-look-forgets-what-was-woken-since",
        (Edit("engine/hot.py", "            elif hot.stamp < stamp:\n", "            else:\n"),),
        (f"{BOUNDS}a_look_believes_what_was_woken_since_it_began",),
        "no lost wake-up: what came after a look began is newer than what it saw",
    ),
    Mutant(
        "a-claim-is-answered-before-it-was-looked-for",
        (Edit("engine/line.py", "in groups and not waiter.reserved:", "is not None and not waiter.reserved:"),),
        (f"{FAIR}rel_t9_a_claim_behind_many_others_is_answered_when_it_was_looked_for",),
        "T9: a claim beyond the bound of a round is not forgotten",
    ),
    Mutant(
        "a-claim-without-a-slot-was-looked-for",
        (Edit("engine/dispatch.py", OTHERS_FIRST, f"                self._looked_for.add(group)\n{OTHERS_FIRST}"),),
        (f"{BOUNDS}who_was_not_asked_for_is_not_sent_away[sqlite]",),
        "who does not wait is answered after it was looked for",
    ),
    Mutant(
        "jobs-unsaid-until-the-next-turn",
        (Edit("engine/dispatch.py", "self._hands.answer_laden({", "set({"),),
        (f"{BOUNDS}nobody_who_has_jobs_waits_for_its_next_turn[sqlite]",),
        "whoever has jobs is answered at once",
    ),
    Mutant(
        "limited-queues-of-one-tenant-first",
        (
            Edit("engine/limited.py", "return self.claims <= 0 or self.looks <= 0", "return self.claims < -1000"),
            Edit("engine/limited.py", "tenants.setdefault(queue[0], [])", 'tenants.setdefault("", [])'),
            Edit("engine/limited.py", "tenant = queue[0]\n", 'tenant = ""\n'),
        ),
        (f"{FAIR}rel_t15_limited_queues_of_tenants_are_claimed_from_by_turns",),
        "T15: limited queues of tenants take turns",
    ),
    Mutant(
        "one-kind-of-claims-first-at-a-limited-queue",
        (Edit("engine/demand.py", "groups[group] = groups.pop(group)", "pass"),),
        (f"{BOUNDS}rel_t15_kinds_of_claims_take_turns_at_a_limited_queue[sqlite]",),
        "T15: who was served longest ago is next",
    ),
    Mutant(
        "limited-queues-are-looked-at-for-everybody",
        (Edit("engine/dispatch.py", "for lane in found if lane.limited})", "for lane in lanes if lane.limited})"),),
        (f"{BOUNDS}rel_t9_a_limited_queue_is_looked_at_for_few_claims_in_one_go[sqlite]",),
        "T9: a limited queue is visited for those who can run some of it",
    ),
    Mutant(
        "a-pass-over-limited-queues-without-bound",
        (Edit("engine/limited.py", "allowance.looks -= 1 + len(lanes)", "allowance.looks -= 0"),),
        (f"{BOUNDS}rel_t9_a_pass_over_limited_queues_is_made_in_portions[sqlite-1-30]",),
        "T9: what a pass over limited queues looks at is bounded",
    ),
    Mutant(
        "a-pass-over-limited-queues-in-one-go",
        (Edit("engine/limited.py", "                await asyncio.sleep(0)\n", ""),),
        (f"{BOUNDS}rel_t9_a_pass_over_limited_queues_is_made_in_portions[sqlite-10-1]",),
        "T9: others have their turn between limited queues",
    ),
    Mutant(
        "a-full-queue-was-not-visited",
        (
            Edit(
                "engine/demand.py", "max(demand.refused, demand.groups[group]) > visit", "demand.groups[group] > visit"
            ),
        ),
        (f"{BOUNDS}a_claim_for_a_full_queue_does_not_wait_for_busy_ones[sqlite]",),
        "who does not wait is answered when its queues are full",
    ),
    Mutant(
        "a-claim-is-answered-before-its-limited-queues-were-visited",
        (Edit("engine/demand.py", "max(demand.refused, demand.groups[group]) > visit", "visit >= 0"),),
        (f"{DISPATCH}a_limited_queue_hands_out_no_more_than_its_limit[sqlite]",),
        "who does not wait is answered after its limited queues were visited",
    ),
    Mutant(
        "a-claim-brings-a-tenant-back",
        (
            Edit(
                "engine/limited.py",
                "        if not numbers:\n            return  # and",
                "        if False:\n            return  # and",
            ),
        ),
        (f"{BOUNDS}a_claim_does_not_bring_a_deleted_tenant_back[sqlite]",),
        "M1: who only asks for jobs makes no tenant",
    ),
    Mutant(
        "a-lane-is-gone-when-its-queue-is-known",
        (Edit("engine/limited.py", " if number in self._hot]", "]"),),
        (f"{BOUNDS}a_lane_that_is_emptied_while_its_queue_is_learned_spoils_no_claim[sqlite]",),
        "a lane that was emptied meanwhile spoils no claim",
    ),
    Mutant(
        "a-lane-is-compared-with-each-queue-of-a-claim",
        (Edit("engine/line.py", "name.queue in self.queues", "name.queue in tuple(self.queues)"),),
        (f"{BOUNDS}rel_t9_a_lane_is_compared_with_no_list_of_queues",),
        "T9: to look at a lane costs the same for a claim of many queues",
    ),
    Mutant(
        "all-limited-queues-of-a-claim-are-looked-at-in-each-pass",
        (Edit("engine/line.py", "if waiter.unvisited is None:", "if True:"),),
        (f"{BOUNDS}rel_t9_each_limited_queue_of_a_claim_is_looked_at_once",),
        "T9: what was visited is not looked at again",
    ),
    Mutant(
        "long-jobs-of-a-limited-queue-wait-for-a-look",
        (Edit("engine/limited.py", " and sum(job.size for job in jobs) < claim.MOST_BYTES // 2", ""),),
        (f"{BOUNDS}long_jobs_of_a_limited_queue_follow_each_other[sqlite]",),
        "H4: what is too long for one claim comes with the next",
    ),
)
