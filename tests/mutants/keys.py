"""Guards of keys, tenants and the gate: what is over lets nobody in, and a tenant goes only when nothing is left."""

from __future__ import annotations

from tests.mutants.mutant import Edit, Mutant, both, races, sql

KEYS = "tests/queue/test_keys.py::test_"
TENANTS = "tests/queue/test_tenants.py::test_"
AUTH = "tests/server/test_auth.py::test_"
DELETED = "tests/queue/races/test_administration.py::test_a_tenant_deleted_"
AUDIT = "tests/queue/test_audit.py::test_"

MUTANTS = (
    Mutant(
        "key-found-when-revoked",
        (sql("keys", "find_keys", "AND k.revoked_at IS NULL", "", count=2),),
        (f"{KEYS}rel_t3_a_revoked_key_is_not_found", f"{AUTH}rel_t3_use_does_not_prolong_belief"),
        "T3: a revoked key lets nobody in",
    ),
    Mutant(
        "key-found-when-expired",
        (sql("keys", "find_keys", "k.expires_at > :now", "k.expires_at IS NOT NULL", count=2),),
        (f"{KEYS}rel_t3_a_key_expires_by_the_databases_clock",),
        "T3: a key ends by the database's clock",
    ),
    Mutant(
        "key-found-without-its-tenant",
        (sql("keys", "find_keys", "WHERE t.name = k.tenant", "WHERE t.name IS NOT NULL", count=2),),
        (f"{KEYS}a_key_whose_tenant_is_not_there_is_not_found",),
        "N1: a key with a tenant implies the tenant",
    ),
    Mutant(
        "key-revoked-by-another-tenant",
        both(
            "keys",
            "revoke_key",
            "AND (CAST(:tenant AS text) IS NULL OR tenant = CAST(:tenant AS text))",
            "AND coalesce(CAST(:tenant AS text), '') IS NOT NULL",
            sqlite="AND (:tenant IS NULL OR tenant = :tenant)",
        ),
        (f"{KEYS}rel_t5_a_key_is_seen_and_revoked_within_its_tenant_only",),
        "T5: another tenant's key is like one that never was",
    ),
    Mutant(
        "key-beyond-its-makers-tenant",
        (Edit("queue/keys.py", "if within is not None and new.tenant != within:", "if within == '':"),),
        (f"{KEYS}rel_t5_a_tenants_admin_makes_keys_of_that_tenant_only",),
        "T5: a tenant's admin makes keys of that tenant only",
    ),
    Mutant(
        "key-of-a-tenant-not-kept",
        (sql("keys", "keep_tenant", "FOR KEY SHARE", "", "postgres"),),
        races("administration::a_tenant_is_deleted_or_gets_a_key"),
        "N1: making a key meets deleting its tenant on the tenant's row",
        only="postgres",
    ),
    Mutant(
        "admin-limited-to-queues",
        (Edit("queue/keys.py", 'if "admin" in new.scopes:', "if not new.scopes:"),),
        (f"{KEYS}a_key_that_cannot_be_is_refused[sqlite-queues-fields9]",),
        "N2: a key cannot make itself one without its limits",
    ),
    Mutant(
        "first-key-with-another-secret",
        (Edit("queue/keys.py", 'if found["hash"] != hash_token(token):', 'if not found["hash"]:'),),
        (f"{KEYS}a_first_key_with_the_id_of_another_is_refused",),
        "N8: servers configured with different secrets are told",
    ),
    Mutant(
        "token-without-checksum",
        (Edit("queue/keys.py", "if found and found[3] == _checksum(found[1]) else None", "if found else None"),),
        (f"{KEYS}rel_t1_a_slip_of_the_hand_is_seen_without_a_look_up",),
        "T1: a slip of the hand is refused without a look-up",
    ),
    Mutant(
        "tenant-deleted-before-its-submits-end",
        (Edit("queue/tenants.py", "are_over = await _await_writers(db, pause)", "are_over = True"),),
        (f"{DELETED}beside_a_submit_loses_no_job[postgres]",),
        "M1: a job whose submit is under way keeps its tenant",
    ),
    Mutant(
        "tenant-deleted-that-is-used-again",
        (Edit("queue/tenants.py", "if delete is not None and await", "if False and await"),),
        (f"{DELETED}while_its_lanes_are_made_stays[postgres]",),
        "M1: a lane that is made again keeps its tenant",
    ),
    Mutant(
        "tenant-deleted-that-another-delete-retires",
        (sql("tenants", "lanes_in_use", "retired <> 1 AND retired <> :delete", "retired = 0 AND :delete <> 0"),),
        (f"{DELETED}by_two_beside_a_submit_loses_no_job",),
        "M1: a lane that was made again keeps its tenant, also where another delete retires it",
    ),
    Mutant(
        "refused-delete-retires-lanes",
        (Edit("queue/tenants.py", "await transaction.fetch(SQL.use_lanes_again, tenant=name, delete=number)", "pass"),),
        (f"{DELETED}beside_a_submit_loses_no_job[postgres]",),
        "a call that is refused changes nothing",
    ),
    Mutant(
        "tenant-deleted-with-jobs-or-keys",
        (Edit("queue/tenants.py", "if any(held.values()):", "if not held:"),),
        (
            f"{TENANTS}a_tenant_with_live_jobs_stays",
            f"{TENANTS}a_tenant_with_keys_stays_until_they_are_over",
            f"{TENANTS}a_tenant_with_history_stays_until_retention",
        ),
        "P39: a tenant goes only when nothing of it is left",
    ),
    Mutant(
        "tenant-gone-while-its-lane-is-made",
        (
            Edit(
                "queue/lanes.py",
                "while not (locked := await transaction.fetch(SQL.lock_tenant, tenant=tenant)):",
                "if not (locked := await transaction.fetch(SQL.lock_tenant, tenant=tenant)) and not names:",
            ),
        ),
        races("administration::a_lane_made_while_its_tenant_is_deleted_brings_it_back"),
        "N1: making a lane meets deleting on the tenant's row",
        only="postgres",
    ),
    Mutant(
        "gate-believes-a-clock-set-back",
        (
            Edit(
                "server/auth.py",
                "timedelta(0) <= self._clock() - found.asked_at < BELIEVED",
                "self._clock() - found.asked_at < BELIEVED",
            ),
        ),
        (f"{AUTH}rel_t3_a_clock_set_back_does_not_prolong_belief",),
        "T3: a revoked key ends, whatever the clock does",
    ),
    Mutant(
        "gate-believes-from-the-answer-on",
        (Edit("server/auth.py", "_Found(asked_at, stored,", "_Found(self._clock(), stored,"),),
        (f"{AUTH}rel_t3_a_slow_look_up_is_as_old_as_its_question",),
        "T3: what was read before a revoke is not believed after it",
    ),
    Mutant(
        "gate-without-comparison",
        (Edit("server/auth.py", "if found is not None and same:", "if found is not None:"),),
        (f"{AUTH}rel_t2_every_refusal_is_the_same",),
        "T2: the id alone is no authority",
    ),
    Mutant(
        "gate-never-slows",
        (Edit("server/auth.py", "(FAILURES, count + 1, since_at),", "(FAILURES, 0, since_at),"),),
        (f"{AUTH}rel_t2_who_guesses_is_slowed", f"{AUTH}rel_t2_a_thousand_guesses_lock_no_good_key_out"),
        "T2: who guesses is told to wait",
    ),
    Mutant(
        "gate-takes-keys-from-the-query",
        (
            Edit(
                "server/auth.py", "if any(name.lower() in QUERY_NAMES for name in query_names):", "if not QUERY_NAMES:"
            ),
        ),
        (f"{AUTH}rel_t1_a_key_in_the_query_is_refused",),
        "T1: a key in an address lands in logs",
    ),
    Mutant(
        "audit-of-another-tenant",
        (sql("audit", "list_of_tenant", "AND tenant = :tenant", "AND :tenant <> 'nothing'"),),
        (f"{AUDIT}rel_t5_a_tenant_reads_its_own_entries",),
        "T5: a tenant reads its own entries",
        only="sqlite",
    ),
    Mutant(
        "guesses-not-counted-by-network",
        (Edit("server/auth.py", "        guesses.count += 1\n", ""),),
        (f"{AUTH}rel_t2_made_up_ids_are_slowed_by_their_address",),
        "L3: whoever makes ids up is told to wait",
    ),
    Mutant(
        "unknown-ids-cost-more",
        (Edit("server/auth.py", "if known is not None and not is_slowed:", "if known is not None and is_slowed:"),),
        (f"{AUTH}rel_t2_known_and_unknown_ids_cost_the_same",),
        "L3: a wrong secret costs the same whether its id is known or not",
    ),
    Mutant(
        "look-ups-of-guessers-at-once",
        (
            Edit(
                "server/auth.py",
                "return await self._line.ask(_Asked(key_id, network))",
                "return (await self._look_up([key_id]))[0]",
            ),
        ),
        (
            f"{AUTH}rel_t2_guesses_have_one_look_up_at_a_time",
            f"{AUTH}rel_t2_a_new_key_waits_for_a_few_look_ups_whatever_the_crowd[sqlite-192.0.2.1-2]",
        ),
        "L3: guessing keeps one connection busy at most",
    ),
    Mutant(
        "new-keys-wait-behind-guesses-of-others",
        (Edit("server/auth.py", "Weight(1, 0, asked.network)", 'Weight(1, 0, "")'),),
        (f"{AUTH}rel_t2_a_new_key_waits_for_a_few_look_ups_whatever_the_crowd[sqlite-192.0.2.2-1]",),
        "T2: addresses take turns to have keys looked up",
    ),
    Mutant(
        "refusals-fill-the-log",
        (Edit("server/problems.py", "self._told.total() >= LINES_PER_SECOND or ", ""),),
        ("tests/server/test_refusals.py::test_many_addresses_do_not_fill_the_log",),
        "L11: refused requests leave as many lines as can be read",
    ),
    Mutant(
        "good-keys-wait-behind-guesses",
        (
            Edit(
                "server/auth.py",
                "if compare_digest(digest, _NO_HASH if last is None else last.stored.hash):",
                "if False:",
            ),
        ),
        (f"{AUTH}rel_t2_a_good_key_does_not_wait_behind_guesses[sqlite]",),
        "T2: a good key does not wait behind a crowd that guesses",
    ),
    Mutant(
        "known-ids-pass-guesses",
        (
            Edit(
                "server/auth.py",
                "if compare_digest(digest, _NO_HASH if last is None else last.stored.hash):",
                "if last is not None:",
            ),
        ),
        (f"{AUTH}rel_t2_a_good_key_does_not_wait_behind_guesses[sqlite]",),
        "T2: a wrong secret waits as long whether its id is known or not",
    ),
    Mutant(
        "a-key-that-has-ended-makes-others",
        (Edit("queue/keys.py", "if maker is not None and not await", "if maker is None and not await"),),
        ("tests/queue/test_keys.py::test_rel_t3_a_key_that_has_ended_makes_no_other",),
        "T3: what is believed for a while leaves no key behind",
    ),
    Mutant(
        "a-key-is-made-beside-the-end-of-its-maker",
        both(
            "keys",
            "keep_key",
            "id = :id AND revoked_at IS NULL AND (expires_at IS NULL OR expires_at > :now)",
            "id = :id",
        ),
        races("administration::rel_t3_no_key_is_made_by_one_whose_revoke_was_answered"),
        "T3: a key is made before its maker ends, or not at all",
    ),
    Mutant(
        "a-name-is-given-again-while-keys-are-believed",
        (Edit("queue/keys.py", 'max(FORGOTTEN_S - row["age_ms"] / 1000, 0.0)', "0.0"),),
        ("tests/queue/test_tenants.py::test_rel_t3_a_name_is_given_again_when_no_key_of_it_is_believed",),
        "M1: nobody of the last owner is let in to the next one",
    ),
    Mutant(
        "a-vacuum-counts-as-a-writer",
        (sql("erasure", "writers", "c.relkind IN ('r', 'p')", "true", "postgres"),),
        races("administration::a_tenant_is_deleted_beside_a_vacuum"),
        "P39: a tenant is deleted whatever is cleaned up meanwhile",
        only="postgres",
    ),
    Mutant(
        "a-later-revoke-is-not-seen",
        (
            sql(
                "keys",
                "last_key",
                "(revoked_at IS NOT NULL OR expires_at <= :now)",
                "coalesce(revoked_at, expires_at) <= :now",
                "postgres",
            ),
        ),
        ("tests/queue/test_tenants.py::test_a_key_revoked_after_a_delete_began_to_look_counts[postgres]",),
        "M1: a key that was revoked while a delete waited is believed still",
        only="postgres",
    ),
    Mutant(
        "a-name-is-given-again-beside-its-erasure",
        (
            Edit(
                "queue/tenants.py",
                "name))[0] != key_ended_at:\n            raise Contention",
                "name))[0] is ...:\n            raise Contention",
            ),
        ),
        ("tests/queue/test_tenants.py::test_a_name_is_not_given_again_beside_the_end_of_its_erasure",),
        "M1: the keys of a tenant that has been erased this moment are believed still",
    ),
    Mutant(
        "a-key-is-not-looked-at-after-the-body",
        (Edit("server/app.py", "    await call.look_again()\n", ""),),
        ("tests/server/test_revoked.py::test_rel_t3_a_key_that_ends_while_the_body_comes_does_nothing[sqlite]",),
        "T3: a key that ended while the body came does nothing",
    ),
    Mutant(
        "a-key-that-ends-during-a-delete-is-believed",
        (Edit("queue/tenants.py", "if refusal is None and (await", "if refusal is ... and (await"),),
        ("tests/queue/test_tenants.py::test_a_key_that_ends_while_its_tenant_is_deleted_keeps_it",),
        "M1: nobody of the last owner is let in to the next one",
    ),
)
