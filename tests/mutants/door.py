"""Guards of the HTTP door: who may call, whose things they are, what a body may be, who hears an answer."""

from __future__ import annotations

from tests.mutants.mutant import Edit, Mutant, sql

FRAME = "tests/server/test_frame.py::test_"
JOBS = "tests/server/test_jobs.py::test_"
WORK = "tests/server/test_work.py::test_"
PEOPLE = "tests/server/test_people.py::test_"
MATRIX = "tests/server/test_matrix.py::test_"
TENANCY = "tests/server/test_tenancy.py::test_"
BOUNDS = "tests/server/test_bounds.py::test_"
BAD = "tests/server/test_bad_input.py::test_"
DECODING = "tests/server/test_decoding.py::test_"
UNREAD = "tests/server/test_unread.py::test_"
PROTOCOL = "tests/server/test_protocol.py::test_"
TLS = "tests/server/test_tls.py::test_"
CONNECTIONS = "tests/server/test_connections.py::test_"

MUTANTS = (
    Mutant(
        "lists-take-no-turns",
        (Edit("server/app.py", "        if ready.is_list:\n", "        if False:\n"),),
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
        "caps-for-connections-that-are-not-there",
        (Edit("server/run.py", "settings, gate, connections=connections)", "settings, gate)"),),
        ("tests/server/process/test_starting.py::test_rel_t15_waiting_calls_leave_connections_free",),
        "T15: caps are shares of the connections that the server takes",
    ),
    Mutant(
        "streams-beside-the-cap",
        (Edit("server/live.py", "        call.waiting.place(call.tenant, key),\n", ""),),
        (f"{CONNECTIONS}rel_t15_streams_and_waits_share_the_cap[sqlite]",),
        "T15: a stream is a call that waits",
    ),
    Mutant(
        "slow-bodies-hold-all-connections",
        (Edit("server/bodies.py", "if len(receiving) >= self._most[step]:", "if False:"),),
        (
            f"{CONNECTIONS}rel_t9_bodies_that_come_slowly_leave_connections_free[of a key]",
            f"{CONNECTIONS}rel_t9_a_whole_body_always_gets_in",
        ),
        "T9: bodies that come slowly have a share of the connections",
    ),
    Mutant(
        "slow-bodies-of-others-make-room",
        (Edit("server/bodies.py", "for step in reversed(range(len(share.owner) + 1)):", "for step in range(3):"),),
        (f"{CONNECTIONS}rel_t9_bodies_that_come_slowly_leave_connections_free[its own before others]",),
        "T9: a slow body of the same key makes room first",
    ),
    Mutant(
        "readers-without-a-pace",
        (Edit("server/protocol.py", "        self._watch_pace(answer)\n", ""),),
        (f"{PROTOCOL}rel_s8_a_reader_that_takes_a_byte_now_and_then_is_dropped",),
        "S8: a whole answer is taken at a least pace",
    ),
    Mutant(
        "rests-of-answers-without-a-pace",
        (Edit("server/protocol.py", "            self._watch_pace(answered)\n", "            pass\n"),),
        (f"{PROTOCOL}rel_s8_the_rest_of_an_answer_has_its_time[closed-whole]",),
        "S8: what was handed over whole is taken at a least pace, too",
    ),
    Mutant(
        "time-of-an-answer-outlives-it",
        (Edit("server/protocol.py", "            self._pace_timer.cancel()\n", ""),),
        (f"{PROTOCOL}an_answer_that_was_taken_in_time_ends_nothing[all]",),
        "S8: an answer that was taken in time ends no connection",
    ),
    Mutant(
        "answers-without-budget",
        (Edit("server/app.py", 'if route is not None and route.method == "GET":', "if False:"),),
        (f"{CONNECTIONS}rel_s8_answers_under_way_share_a_budget[GET-503]",),
        "S8: answers under way have a budget",
    ),
    Mutant(
        "unread-answers-not-counted",
        (Edit("server/app.py", "if len(body) <= PIECE_BYTES:", "if len(body) <= 1 << 18:"),),
        (f"{UNREAD}rel_s8_an_answer_counts_until_it_is_taken[some]",),
        "S8: an answer counts until its reader has taken it",
    ),
    Mutant(
        "unread-answers-not-counted-with-tls",
        (Edit("server/protocol.py", "transport.set_write_buffer_limits(high=1)", "pass"),),
        (f"{UNREAD}rel_s8_an_answer_counts_until_it_is_taken[TLS]",),
        "S8: an answer counts until its reader has taken it",
    ),
    Mutant(
        "open-answers-without-share",
        (Edit("server/app.py", "    if not route.scopes:\n        return (", "    if False:\n        return ("),),
        (f"{UNREAD}rel_s8_answers_without_a_key_count_together[plain]",),
        "S8: callers without a key have one share of the answers",
    ),
    Mutant(
        "unread-answers-hold-connections",
        (
            Edit(
                "server/protocol.py",
                "if answer.chunked_encoding is False and not answer.expected_content_length:",
                "if False:",
            ),
        ),
        (f"{UNREAD}rel_t9_an_answer_that_is_handed_over_makes_room",),
        "T9: a connection without a request under way makes room",
    ),
    Mutant(
        "answers-of-acts-are-refused",
        (Edit("server/app.py", 'if route is not None and route.method == "GET":', "if True:"),),
        (f"{CONNECTIONS}rel_s8_answers_under_way_share_a_budget[POST-200]",),
        "S8: what was done is told",
    ),
    Mutant(
        "door-without-scopes",
        (Edit("server/app.py", "            _permit(call.principal, route)\n", ""),),
        (f"{MATRIX}rel_t4_a_route_answers_only_its_scopes[sqlite-read]", f"{FRAME}scope_comes_before_the_object"),
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
        "a-key-of-another-tenant-is-revoked",
        (
            sql(
                "keys",
                "revoke_key",
                "OR tenant = CAST(:tenant AS text)",
                "OR true",
                "both",
            ),
        ),
        (f"{TENANCY}rel_t5_what_is_anothers_is_like_what_never_was[sqlite-a-b]",),
        "T5: another tenant's key is like one that never was",
        "sqlite",
    ),
    Mutant(
        "a-worker-of-another-tenant-is-shown",
        (sql("fleet", "list_workers", "s.bare = 0 AND s.tenant = :tenant", "s.bare = 0 AND :tenant <> ''"),),
        (
            f"{TENANCY}rel_t5_what_is_anothers_is_like_what_never_was[sqlite-a-b]",
            f"{TENANCY}what_another_tenant_has_and_does_changes_no_answer[sqlite]",
        ),
        "T5: another tenant's worker is like one that never was",
        "sqlite",
    ),
    Mutant(
        "a-refusal-tells-what-is-wrong-with-a-key",
        (
            Edit(
                "server/auth.py",
                "if token is None:\n            raise Unauthorized(_REFUSED)",
                'if token is None:\n            raise Unauthorized("There is no key.")',
            ),
        ),
        (f"{MATRIX}rel_t4_without_a_good_key_every_route_is_401",),
        "T2: one body for all 401",
    ),
    Mutant(
        "a-list-of-any-length",
        (
            Edit(
                "wire/tasks.py",
                "JsonTypes = Annotated[tuple[JsonType, ...], Meta(max_length=7)]",
                "JsonTypes = tuple[JsonType, ...]",
            ),
        ),
        (f"{BOUNDS}rel_t9_every_field_of_a_body_has_a_bound",),
        "T9: every list of a request has a bound",
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
        "bodies-without-budget",
        (Edit("server/bodies.py", "if size - self.size > self.budget.left(self.owner):", "if size < 0:"),),
        (f"{FRAME}rel_s8_bodies_under_way_share_a_budget[length0]",),
        "S8: bodies under way have a budget",
    ),
    Mutant(
        "one-tenant-has-all-bodies",
        (Edit("server/bodies.py", "            left = (left + own) // 2 - own\n", "            left -= 0 * own\n"),),
        (f"{FRAME}nobody_can_have_all_of_the_budget",),
        "T15: a tenant has half of what others leave",
    ),
    Mutant(
        "budget-is-used-up",
        (Edit("server/bodies.py", "                self.add(share.owner, -share.size)\n", "                pass\n"),),
        (f"{FRAME}the_budget_of_a_body_is_given_back[gone]",),
        "S8: the budget of a body is given back",
    ),
    Mutant(
        "list-walked-before-it-is-counted",
        (Edit("server/decoding.py", "    if text.commas < most:\n", "    if True:\n"),),
        (f"{DECODING}rel_t9_a_body_is_refused_before_it_is_walked[BatchRequest jobs1]",),
        "T9: a list is counted before it is walked",
    ),
    Mutant(
        "values-made-before-they-are-counted",
        (Edit("server/decoding.py", "if len(text.data) > LONG or text.commas >= MANY:", "if False:"),),
        (f"{DECODING}rel_t9_a_body_is_refused_before_it_is_walked[BatchRequest jobs1]",),
        "T9: a list is counted before its values are made",
    ),
    Mutant(
        "every-name-looked-at",
        (
            Edit(
                "server/decoding.py",
                "        if count > most:\n            raise InvalidInput(where or",
                "        if False:\n            raise InvalidInput(where or",
            ),
        ),
        (f"{DECODING}rel_t9_a_body_is_refused_before_it_is_walked[BatchRequest jobs[0]]",),
        "T9: an object has a bounded number of names",
    ),
    Mutant(
        "lists-of-capabilities-are-walked",
        (
            Edit(
                "server/decoding.py", "            yield from _check_lists(spare, shape.lists.get(extras), where)\n", ""
            ),
        ),
        (f"{DECODING}rel_t9_a_body_is_refused_before_it_is_walked[ClaimRequest capabilities.a0]",),
        "T9: a bound is known before anything is walked",
    ),
    Mutant(
        "lists-of-labels-are-walked",
        (Edit("server/decoding.py", "yield from _check_lists(entries, shape.lists.get(field), where)", "pass"),),
        (f"{DECODING}rel_t9_a_body_is_refused_before_it_is_walked[ClaimRequest capabilities.labels.]",),
        "T9: a bound is known before anything is walked",
    ),
    Mutant(
        "lists-in-lists-of-capabilities-are-walked",
        (
            Edit(
                "server/decoding.py", "                _entries_of_list(held, most, inner)\n", "                pass\n"
            ),
        ),
        (f"{DECODING}rel_t9_a_body_is_refused_before_it_is_walked[ClaimRequest capabilities.a2]",),
        "T9: a bound is known before anything is walked",
    ),
    Mutant(
        "capabilities-of-any-json",
        (
            Edit(
                "wire/work.py",
                "Capability = _Part | _Parts",
                "Capability = bool | NumberOrText | tuple[Any, ...] | Inner | None",
            ),
        ),
        (f"{BOUNDS}rel_t9_every_field_of_a_body_has_a_bound",),
        "T9: every field of a body has a bound",
    ),
    Mutant(
        "renaming-without-end",
        (Edit("server/decoding.py", "        if self._left < 0:\n", "        if False:\n"),),
        (f"{DECODING}rel_t9_only_so_many_objects_may_have_names_of_others",),
        "T9: what renaming costs is bounded",
    ),
    Mutant(
        "decoded-in-one-go",
        (Edit("server/decoding.py", "                await give_way()\n", "                pass\n"),),
        (f"{DECODING}rel_t9_a_large_body_is_decoded_in_turns",),
        "T9: nobody holds the event loop",
    ),
    Mutant(
        "upgrade-with-a-body",
        (Edit("server/protocol.py", "if self.parser.should_upgrade() and _has_body(self.headers):", "if False:"),),
        (f"{PROTOCOL}rel_s3_no_request_hides_in_the_body_of_an_upgrade[POST-Content-Length: 32\\r\\n]",),
        "S3: no request hides in the body of another",
    ),
    Mutant(
        "read-on-behind-an-upgrade",
        (
            Edit(
                "server/protocol.py",
                "            self._refused = True\n            self.cycle.keep_alive = False\n",
                "",
            ),
        ),
        (f"{PROTOCOL}an_upgrade_is_answered_as_if_it_were_none",),
        "S3: what comes behind an upgrade is not read",
    ),
    Mutant(
        "broken-request-answered-first",
        (Edit("server/protocol.py", "if is_whole or self.cycle is not self._running:", "if is_whole:"),),
        (f"{PROTOCOL}rubbish_in_a_body_behind_a_request_is_answered_in_its_turn",),
        "S3: answers come in the order of their requests",
    ),
    Mutant(
        "requests-wait-without-end",
        (Edit("server/protocol.py", "if len(self.pipeline) >= PIPELINED:", "if False:"),),
        (f"{PROTOCOL}rel_t9_only_so_many_requests_of_a_connection_wait[GET / HTTP/1.1\\r\\n\\r\\n-not read]",),
        "T9: requests of a connection that wait are bounded",
    ),
    Mutant(
        "slow-reader-dropped",
        (Edit("server/protocol.py", "if left >= unsent and left:", "if left:"),),
        (f"{PROTOCOL}a_slow_reader_is_waited_for[99-False]",),
        "S8: a reader that takes something is waited for",
    ),
    Mutant(
        "silent-reader-kept",
        (Edit("server/protocol.py", "if left >= unsent and left:", "if left > unsent:"),),
        (f"{PROTOCOL}a_slow_reader_is_waited_for[100-True]",),
        "S8: a reader that takes nothing is dropped",
    ),
    Mutant(
        "writes-to-who-has-gone",
        (Edit("server/protocol.py", "            self._running.disconnected = True\n", ""),),
        (f"{PROTOCOL}rel_s8_a_stream_that_nobody_reads_is_dropped[with a request behind]",),
        "A12: a caller that has gone leaves no trace in the log",
    ),
    Mutant(
        "handshakes-not-counted",
        (Edit("server/tls.py", "        enter(self, self._state, protocol.cap)\n", ""),),
        (f"{TLS}rel_t9_handshakes_that_never_come_lock_nobody_out",),
        "T9: handshakes count among the connections",
    ),
    Mutant(
        "broken-certificate-taken",
        (
            Edit(
                "server/tls.py",
                "        except OSError as error:\n            log.event(",
                "        except ZeroDivisionError as error:\n            log.event(",
            ),
        ),
        (f"{TLS}rel_d13_a_certificate_that_is_broken_is_not_taken",),
        "D13: a broken certificate leaves the one before",
    ),
    Mutant(
        "no-files-for-itself",
        (Edit("server/run.py", "allowed = max(limit - OWN_FILES, limit // 2)", "allowed = limit"),),
        (
            "tests/server/process/test_starting.py::test_the_limit_of_files_is_raised_as_far_as_it_goes[1024-1024-896-1024]",
        ),
        "T9: a server keeps files for itself",
    ),
    Mutant(
        "plain-beyond-loopback",
        (Edit("server/run.py", "if settings.security.tls_cert is None and not server.allow_plain:", "if False:"),),
        (
            "tests/server/process/test_starting.py::test_rel_t14_beyond_this_machine_tls_is_needed[server0-security0-True]",
        ),
        "T14: beyond loopback TLS is needed unless told",
    ),
    Mutant(
        "health-names-a-host",
        (
            Edit(
                "server/admin.py",
                'return Health(status="ok")',
                'return Health(status="ok", reasons=[_call.engine.name])',
            ),
        ),
        (f"{PEOPLE}health_version_and_figures[sqlite]",),
        "L6: no name of a host without a key",
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
        (Edit("server/app.py", "        await acted.keep(call, route, answer.content)\n", "        pass\n"),),
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
        "duties-shown-to-tenants",
        (Edit("server/duties.py", 'what they do is for all tenants."""\n    call.require_no_tenant()', 'all."""'),),
        (f"{PEOPLE}duties_show_their_holders",),
        "M2: what others do is not seen",
    ),
    Mutant(
        "reasons-of-pauses-with-secrets",
        (Edit("server/shown.py", "    reason = call.hidden(pause.reason)\n", "    reason = pause.reason\n"),),
        (f"{PEOPLE}rel_t17_the_reasons_of_pauses_are_shown_without_secrets",),
        "N6: secrets do not appear in answers",
    ),
    Mutant(
        "database-words-told",
        (Edit("server/problems.py", "    if not told_by_database(error):\n", "    if error:\n"),),
        ("tests/server/test_shown.py::test_rel_t17_what_the_database_says_is_for_the_log",),
        "L13: what the database says is for the log",
    ),
    Mutant(
        "lines-redacted-before-leases",
        (Edit("engine/trail.py", "told = await logs.held(self._db, told)", "pass"),),
        ("tests/server/test_logs.py::test_lines_of_a_lease_that_is_not_there_cost_nothing",),
        "H5: leases first, then redaction",
    ),
    Mutant(
        "claim-answer-without-end",
        (Edit("engine/translate.py", "if size + own > most and index:", "if size < 0:"),),
        (f"{WORK}the_answer_to_a_claim_is_bounded",),
        "S9: the answer to a claim is bounded",
    ),
    Mutant(
        "two-keys-for-one-job",
        (Edit("server/jobs.py", "if asked.idempotency_key not in (None, header):", 'if header == "":'),),
        (f"{JOBS}an_idempotency_key_names_the_work",),
        "S6: header and body name the same key",
    ),
    Mutant(
        "ready-without-a-write",
        (
            Edit(
                "server/admin.py",
                "                await self._write()\n",
                "                pass\n",
            ),
        ),
        ("tests/server/test_ready.py::test_a_sqlite_file_that_takes_no_write_is_not_ready",),
        "a server whose database takes no write is not ready",
    ),
    Mutant(
        "ready-while-locked",
        (Edit("server/admin.py", "Error):\n            return [LOCKED]", "Error):\n            return []"),),
        ("tests/server/test_ready.py::test_a_sqlite_file_that_another_program_has_locked_is_not_ready",),
        "L1: a server whose database somebody else has locked is not ready",
    ),
    Mutant(
        "ready-while-nobody-knows",
        (Edit("server/admin.py", "done():\n            return [LOCKED]", "done():\n            return []"),),
        ("tests/server/test_ready.py::test_while_a_write_has_not_come_back_the_server_is_not_ready[sqlite]",),
        "L1: a server whose last write has not come back is not ready",
    ),
    Mutant(
        "told-of-the-look-of-another",
        (Edit("server/admin.py", "if not looking.done():", "if not self._looking.done():"),),
        ("tests/server/test_ready.py::test_a_caller_is_told_of_the_look_that_it_waited_for",),
        "L1: a server whose write succeeded is ready",
    ),
    Mutant(
        "ready-only-without-other-writes",
        (Edit("server/admin.py", "CALLER_S = 3.0", "CALLER_S = 0.0"),),
        (
            "tests/server/test_ready.py::test_a_busy_database_is_ready[sqlite]",
            "tests/server/test_ready.py::test_a_busy_database_is_ready[postgres]",
        ),
        "L1: a server whose writes wait in line is ready",
    ),
    Mutant(
        "ready-while-a-table-is-locked",
        (
            sql(
                "duties",
                "touch_server",
                "WITH no_place AS (DELETE FROM queue WHERE false), no_job AS (DELETE FROM job WHERE false)\n",
                "",
                "postgres",
            ),
        ),
        ("tests/server/test_ready.py::test_a_postgres_table_that_another_program_has_locked_is_not_ready[queue]",),
        "L1: a server is not ready while somebody has locked a table that every claim writes",
        only="postgres",
    ),
    Mutant(
        "ready-writes-for-every-caller",
        (
            Edit(
                "server/admin.py", "(self._looking.done() and now - self._looked_at > LOOKED_S)", "self._looking.done()"
            ),
        ),
        ("tests/server/test_ready.py::test_asking_often_writes_once_a_second",),
        "whoever asks all the time cannot keep the database busy",
    ),
    Mutant(
        "claims-are-answered-without-room",
        (Edit("engine/exchange.py", "most=ANSWER_BYTES if room is None else room.left", "most=ANSWER_BYTES"),),
        (f"{WORK}rel_s8_a_claim_takes_what_its_answer_has_room_for[sqlite-claim]",),
        "S8: claims that nobody reads do not fill the memory",
    ),
    Mutant(
        "answers-of-claims-are-not-counted",
        (Edit("engine/exchange.py", "room.hold(size)", "pass"),),
        (f"{WORK}rel_s8_a_claim_takes_what_its_answer_has_room_for[sqlite-claim]",),
        "S8: claims that nobody reads do not fill the memory",
    ),
    Mutant(
        "requests-that-wait-for-second-looks",
        (Edit("server/tuning.py", "else (NEVER,)))", "else ()))"),),
        ("tests/server/test_tuning.py::test_no_request_waits_for_a_second_look",),
        "T9: a second look at objects has a turn of the loop of its own",
    ),
    Mutant(
        "words-of-lost-leases",
        (Edit("engine/exchange.py", "if note.job_id not in lost]", "]"),),
        ("tests/server/test_exchange.py::test_a_heartbeat_keeps_nothing_of_leases_that_are_lost[sqlite]",),
        "T9: what a heartbeat says of leases that nobody has costs no write",
    ),
)
