"""Guards of the engine: neighbours in a batch, who gets what in a claim, who is woken, who gives back."""

from __future__ import annotations

from tests.mutants.mutant import Edit, Mutant

BATCH = "tests/engine/test_batch.py::test_"
CHANGES = "tests/engine/test_changes.py::test_"
DISPATCH = "tests/engine/test_dispatch.py::test_"
FAIR = "tests/engine/test_dispatch_fair.py::test_"
FIGURES = "tests/engine/test_figures.py::test_"
JOURNAL = "tests/engine/test_journal.py::test_"
LIVE = "tests/server/test_live.py::test_"
WRITER = "tests/engine/test_fair.py::test_rel_t15_"
TWO = "tests/engine/test_two_servers.py::test_"

MUTANTS = (
    Mutant(
        "batch-fails-with-its-worst",
        (Edit("engine/batch.py", "if len(batch) > 1:", "if len(batch) > 1000:"),),
        (f"{BATCH}rel_x28_a_poison_request_fails_alone", f"{BATCH}a_fault_of_ours_fails_one_request"),
        "X28: a poison request fails alone",
    ),
    Mutant(
        "batch-repeats-unknown-commits",
        (Edit("engine/batch.py", "= (Contention, CommitAborted)", "= (Unavailable,)"),),
        (f"{BATCH}rel_x4_an_unknown_commit_is_not_run_again",),
        "X4: an unknown commit is not run again",
    ),
    Mutant(
        "batch-without-bound",
        (Edit("engine/batch.py", "if self._rows + weight.rows > self._room or", "if self._rows < 0 or"),),
        (f"{BATCH}a_full_line_takes_one_request_of_a_tenant_that_has_none",),
        "S10: a full line answers 429",
    ),
    Mutant(
        "callers-that-left-strand-others",
        (Edit("engine/batch.py", "continue  # the callers", "return  # the callers"),),
        (f"{BATCH}callers_that_left_strand_nobody",),
        "rule 16: a request never fails its neighbours",
    ),
    Mutant(
        "batch-room-for-one-tenant-alone",
        (Edit("engine/batch.py", "if 2 * (rows + weight.rows) > self._room or", "if self._rows < 0 or"),),
        (f"{BATCH}a_tenant_takes_half_of_a_line_at_most",),
        "T15: a tenant takes half of a line at most",
    ),
    Mutant(
        "batch-first-come-first-served",
        (Edit("engine/batch.py", ".push(waiting.tenant, waiting, cost)", '.push("", waiting, cost)'),),
        (f"{BATCH}large_requests_of_tenants_take_turns",),
        "T15: tenants take turns in a line",
    ),
    Mutant(
        "batch-small-behind-large",
        (Edit("engine/batch.py", "is_large = waiting.rows > MUCH or", "is_large = waiting.rows < 0 or"),),
        (f"{BATCH}a_second_flush_is_kept_for_small_requests",),
        "T15: a small request does not wait for all large ones",
    ),
    Mutant(
        "large-bodies-take-all-turns-of-lists",
        (Edit("engine/acts.py", "at_once=LARGE_AT_ONCE", "at_once=AT_ONCE"),),
        ("tests/server/test_connections.py::test_rel_t15_large_bodies_of_two_tenants_leave_the_lists_to_a_third",),
        "T15: tenants cannot take all turns",
    ),
    Mutant(
        "signatures-of-one-tenant-without-bound",
        (Edit("engine/signatures.py", "        _trim(self._builds_of(tenant))\n", ""),),
        ("tests/engine/test_signatures.py::test_rel_h4_of_one_tenant_no_more_is_remembered_than_is_stored[sqlite]",),
        "H4: what is remembered of signatures has a bound",
    ),
    Mutant(
        "rests-without-end",
        (Edit("engine/fair.py", "begun_s), MOST_REST_S)", "begun_s), 10**9)"),),
        (f"{WRITER}the_writer_is_left_to_others_after_a_large_write[ab-True-20.0-rests1]",),
        "T15: a tenant's next large write waits half a second at most",
    ),
    Mutant(
        "rests-hold-back-all-tenants",
        (Edit("engine/fair.py", "min(seconds, MOST_REST_OF_ALL_S)", "seconds"),),
        (f"{WRITER}the_rest_after_a_large_write_is_for_the_most_part_its_tenants_own",),
        "T15: the rest after a large write is for the most part its tenant's own",
    ),
    Mutant(
        "large-writes-of-several-tenants-without-rest",
        (Edit("engine/fair.py", "min(seconds, MOST_REST_OF_ALL_S)", "0.0"),),
        (f"{WRITER}the_writer_is_left_to_others_after_a_large_write[ab-True-0.125-rests0]",),
        "T15: the writer is left to small writes after each large one",
    ),
    Mutant(
        "rests-begin-after-the-stop",
        (Edit("engine/fair.py", " and not self._is_stopped", ""),),
        (f"{WRITER}the_rest_after_a_large_write_is_for_the_most_part_its_tenants_own",),
        "T15: a stop does not wait for rests",
    ),
    Mutant(
        "rests-ended-before-they-began",
        (
            Edit(
                "engine/fair.py",
                "        await asyncio.sleep(0)  # one that is cancelled",
                "        # one that is cancelled",
            ),
        ),
        ("tests/engine/test_fair.py::test_a_rest_that_is_ended_before_it_began_holds_back_nobody",),
        "T15: a stop holds back nobody",
    ),
    Mutant(
        "a-stop-waits-for-rests",
        (Edit("engine/engine.py", "        await self._large_writes.stop()\n", ""),),
        ("tests/engine/test_fair.py::test_a_stop_does_not_wait_for_rests_of_the_writer[sqlite]",),
        "T15: a stop does not wait for rests",
        only="sqlite",
    ),
    Mutant(
        "a-refused-large-request-is-written",
        (Edit("engine/batch.py", "for waiting in batch if not waiting.answer.done()]:", "for waiting in batch]:"),),
        (f"{BATCH}a_large_request_that_was_refused_while_it_waited_is_not_written",),
        "rule 15: what was refused was not done",
    ),
    Mutant(
        "a-round-of-claims-for-one-tenant-first",
        (Edit("engine/line.py", "setdefault(group.tenant, [])", 'setdefault("", [])'),),
        (f"{FAIR}rel_t15_tenants_share_a_round",),
        "T15: claims of tenants take turns",
    ),
    Mutant(
        "a-round-of-claims-as-long-as-one-tenant-likes",
        (Edit("engine/line.py", "max(1, SHARED_SLOTS // len(found))", "MAX_CLAIM"),),
        (f"{FAIR}rel_t15_a_round_for_several_tenants_is_short[sqlite]",),
        "T15: a round of claims for several tenants is short",
    ),
    Mutant(
        "streams-of-one-key-take-all",
        (Edit("engine/fair.py", "if self._counts[party] >= most:", "if self._counts[None, None] >= self._most:"),),
        (f"{LIVE}rel_t15_the_streams_of_one_key_leave_room_for_others[sqlite]",),
        "M4: streams have a cap by key and by tenant",
    ),
    Mutant(
        "each-stream-looks-for-itself",
        (Edit("server/live.py", "            if own.behind:\n", "            if quiet >= 0:\n"),),
        (f"{LIVE}rel_m4_one_look_serves_all_streams_of_a_tenant[sqlite]",),
        "M4: one look serves all streams of a tenant",
    ),
    Mutant(
        "slow-readers-are-waited-for",
        (Edit("engine/changes.py", "if len(self._heard) + len(found) > MOST_BEHIND:", "if False:"),),
        (f"{LIVE}a_reader_that_is_too_far_behind_is_dropped",),
        "S8: what waits for a slow reader is bounded",
    ),
    Mutant(
        "long-looks-without-rest",
        (
            Edit(
                "engine/changes.py",
                "            if rest_s > 0 and not self._over:\n",
                "            if rest_s < -1e9:\n",
            ),
        ),
        (f"{CHANGES}rel_t15_a_tenant_rests_after_a_long_look[1.0-rests1]",),
        "T15: a tenant rests after a long look",
    ),
    Mutant(
        "batch-forgets-what-comes-at-its-end",
        (Edit("engine/batch.py", "            self._busy_count -= 1\n", "            pass\n"),),
        (f"{BATCH}a_line_that_ran_empty_takes_up_work_again",),
        "a request that comes when the line has just run empty is served",
    ),
    Mutant(
        "claim-keeps-jobs-of-those-who-left",
        (
            Edit(
                "engine/dispatch.py",
                "        if waiter.jobs:\n            self._hands.take_back(",
                "        if False:\n            self._hands.take_back(",
            ),
        ),
        (f"{DISPATCH}rel_x31_a_client_that_left_loses_nothing[sqlite]",),
        "X31: a client that left at the moment of assignment loses nothing",
    ),
    Mutant(
        "claim-hands-jobs-to-those-who-left",
        (Edit("engine/hands.py", "if waiter.gone or lane is None:", "if lane is None:"),),
        (f"{DISPATCH}rel_x31_a_client_that_left_during_the_statement_loses_nothing[sqlite]",),
        "X31: also while the statement is under way",
    ),
    Mutant(
        "claim-keeps-jobs-unsaid",
        (
            Edit(
                "engine/hands.py",
                "        finish((None, waiter) for waiter in self._laden if waiter not in but)\n",
                "        pass\n",
            ),
        ),
        (f"{DISPATCH}nobody_keeps_a_job_unsaid[sqlite]",),
        "whoever has jobs is answered, or its own heartbeats give them back",
    ),
    Mutant(
        "undo-by-id-alone",
        (
            Edit("queue/claim.sql", "q.fence = i.fence AND ", "", "undo", "postgres"),
            Edit("queue/claim.sql", "queue.fence = i.fence AND ", "", "undo", "sqlite"),
        ),
        (
            "tests/queue/test_claim.py::test_what_nobody_heard_of_is_undone[sqlite]",
            "tests/queue/test_claim.py::test_what_nobody_heard_of_is_undone[postgres]",
        ),
        "I7: a lease is undone by its fence",
    ),
    Mutant(
        "claim-never-looks",
        (Edit("engine/dispatch.py", "(waited_for or self._outside.monotonic() >= self._look_at)", "waited_for"),),
        (f"{DISPATCH}rel_x21_work_is_found_without_any_wake_up[sqlite]",),
        "X21: a lost wake-up costs a moment, never a job",
    ),
    Mutant(
        "claim-forgets-room-made-meanwhile",
        (Edit("engine/limited.py", "        if freed == self._freed_count:\n", "        if True:\n"),),
        (f"{DISPATCH}room_made_while_a_rival_claims_is_used_at_once[sqlite]",),
        "a lease that ends while its limited queue is asked makes room at once",
    ),
    Mutant(
        "claim-dead-session-in-the-way",
        (Edit("engine/hands.py", "            if known is None or not known.alive:\n", "            if False:\n"),),
        (f"{DISPATCH}a_session_that_ended_does_not_stand_in_the_way[sqlite]",),
        "a session that ended while it waited takes no slot from the living",
    ),
    Mutant(
        "claim-of-anothers-session",
        (
            Edit(
                "engine/sessions.py",
                "if known is None or _is_foreign(known.session, tenant, worker) or",
                "if known is None or",
            ),
        ),
        (f"{DISPATCH}whose_session_it_is_is_checked_before_anything_is_assigned[sqlite]",),
        "N3: the worker is who its session says before anything is assigned",
    ),
    Mutant(
        "claim-any-task",
        (Edit("engine/line.py", "(self.tasks is None or name.task in self.tasks)", "True"),),
        (f"{DISPATCH}a_worker_gets_only_what_it_can_run[sqlite]",),
        "L17: a worker gets only tasks it knows",
    ),
    Mutant(
        "claim-any-labels",
        (Edit("engine/line.py", 'self.labels.issuperset(filter(None, name.labels.split(",")))', "True"),),
        (f"{DISPATCH}a_worker_gets_only_what_it_can_run[sqlite]",),
        "L17: a worker gets only labels it has",
    ),
    Mutant(
        "limited-completion-wakes-nobody",
        (Edit("engine/engine.py", "            self.wake.freed(answer.lane)\n", "            pass\n"),),
        (f"{DISPATCH}a_limited_queue_hands_out_no_more_than_its_limit[sqlite]",),
        "L15: a completion in a limited lane makes room at once",
    ),
    Mutant(
        "hints-not-sent",
        (Edit("engine/wake.py", "        await self._db.notify(CHANNEL, text.decode())\n", "        return\n"),),
        (f"{TWO}a_hint_alone_is_enough",),
        "wake-ups reach other servers",
        only="postgres",
    ),
    Mutant(
        "ends-elsewhere-not-looked-for",
        (Edit("engine/waits.py", "                if job_id not in live:\n", "                if False:\n"),),
        (f"{TWO}a_result_is_waited_for_on_another_server[notify]",),
        "R12: who waits hears of an end on another server",
        only="postgres",
    ),
    Mutant(
        "all-lines-of-a-report-in-one-go",
        (Edit("engine/journal.py", "if number % TOLD_AT_ONCE == 0:", "if False:"),),
        (
            f"{JOURNAL}rel_t9_the_lines_of_many_reports_are_written_in_portions[sqlite-Fail]",
            f"{JOURNAL}the_lines_of_a_session_that_is_closed_are_written_in_portions[sqlite]",
        ),
        "T9: what a request computes on the event loop in one go is bounded",
    ),
    Mutant(
        "a-stop-does-not-wait-for-lines",
        (
            Edit("engine/engine.py", "await journal.reported(", "self._told = asyncio.ensure_future(journal.reported("),
            Edit("engine/engine.py", "journal.reported(reports, answers)", "journal.reported(reports, answers))"),
        ),
        (f"{JOURNAL}the_lines_under_way_are_written_before_a_stop[sqlite]",),
        "O17: each end of an attempt is told",
    ),
    Mutant(
        "a-mapping-is-redacted-as-a-whole",
        (
            Edit(
                "log.py",
                "    if (size := size + len(json.dumps({name: kept[name]}))) > MAX_VALUE:\n            break\n",
                "    size += len(json.dumps({name: kept[name]}))\n",
            ),
        ),
        ("tests/test_log.py::test_rel_t9_no_more_of_a_mapping_is_redacted_than_is_shown[20]",),
        "T9: what a line costs is bounded",
    ),
    Mutant(
        "figures-are-written-on-the-loop",
        (
            Edit(
                "engine/gauges.py",
                "return await asyncio.to_thread(generate_latest, self._registry)",
                "return generate_latest(self._registry)",
            ),
        ),
        ("tests/server/test_people.py::test_rel_t9_the_figures_are_written_beside_the_event_loop[sqlite]",),
        "T9: what a request computes on the event loop in one go is bounded",
    ),
    Mutant(
        "each-asker-has-figures-written",
        (Edit("engine/gauges.py", "if self._writing is None or self._writing.done():", "if True:"),),
        (f"{FIGURES}rel_t9_who_asks_while_the_figures_are_written_gets_the_same_page[sqlite]",),
        "T9: at most one page of figures is under way",
    ),
    Mutant(
        "figures-are-read-under-the-page",
        (
            Edit(
                "engine/gauges.py",
                "            await self._read()\n            # Some",
                "            await self._read()\n        if True:\n            # Some",
            ),
        ),
        (f"{FIGURES}rel_t9_who_asks_while_the_figures_are_written_gets_the_same_page[sqlite]",),
        "O7: a page has all figures",
    ),
)
