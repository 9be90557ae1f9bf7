"""Guards of who lives: heartbeats, the declaration of death, rescue, and what a loss costs."""

from __future__ import annotations

from tests.mutants.mutant import Edit, Mutant, both, races, sql


def presence(name: str) -> tuple[str, ...]:
    """Return a test of presences, on both databases."""
    return (f"tests/queue/test_presence.py::test_{name}",)


SESSIONS = "tests/engine/test_sessions.py::test_"
WORK = "tests/server/test_work.py::test_"

MUTANTS = (
    Mutant(
        "a-heartbeat-is-reconciled-in-one-go",
        (
            Edit("queue/workers.py", "NAMED_AT_ONCE = 1000", "NAMED_AT_ONCE = 1000_000"),
            Edit("queue/workers.py", "range(0, len(named), NAMED_AT_ONCE)", "range(0, len(named), 10_000)"),
            Edit("queue/workers.py", "named[start : start + NAMED_AT_ONCE]", "named[start : start + 10_000]"),
        ),
        ("tests/queue/test_workers.py::test_rel_t9_a_heartbeat_that_names_many_jobs_is_reconciled_in_portions",),
        "T9: others write while a long heartbeat is reconciled",
    ),
    Mutant(
        "counts-of-a-heartbeat-that-was-prevented",
        (Edit("queue/workers.py", "await _renewed(db, uncounted)", "await _renewed(db, beats)"),),
        ("tests/queue/test_workers.py::test_a_long_heartbeat_that_a_rival_prevented_counts_once",),
        "H1: a worker's counts are what its beats said, once",
    ),
    Mutant(
        "a-long-heartbeat-renews-last",
        (
            Edit(
                "queue/workers.py",
                "_heard(beats, await _renewed(db, uncounted))",
                "_heard(beats, {(beat.session, beat.tenant): {} for beat in uncounted})",
            ),
        ),
        ("tests/queue/test_workers.py::test_a_long_heartbeat_that_a_rival_prevented_counts_once",),
        "L7: leases live while their heartbeat is reconciled",
    ),
    Mutant(
        "a-report-renews-any-session",
        (Edit("engine/sessions.py", "found is None or _is_foreign(found.session, *name):", "found is None:"),),
        (f"{SESSIONS}a_report_keeps_alive_no_session_but_its_workers_own[sqlite-other-ann-False]",),
        "L14: a report keeps alive no session but its worker's own",
    ),
    Mutant(
        "a-key-for-a-queue-renews-others",
        (Edit("server/call.py", "if queues is None or not named:", "if named or queues is None:"),),
        (f"{WORK}rel_l14_a_key_for_some_queues_keeps_no_lease_of_others_alive[sqlite]",),
        "L14: a key that is kept to queues keeps no lease of others alive",
    ),
    Mutant(
        "a-session-of-another-tenant-is-told-apart",
        (Edit("engine/sessions.py", "known.session.tenant != tenant:", "known.session.tenant is None:", count=2),),
        (f"{WORK}rel_l4_a_session_of_another_tenant_is_like_an_ended_one[sqlite]",),
        "L4: a session of another tenant is like one that has ended",
    ),
    Mutant(
        "dead-session-renewed",
        both("workers", "renew", "AND s.state + 0 = 0", "", sqlite="AND session.state = 0"),
        races("sessions::rel_x8_the_dead_stay_dead"),
        "I6: a session declared dead never comes back",
    ),
    Mutant(
        "renew-of-any-tenant",
        both("workers", "renew", "AND s.tenant = i.tenant", "", sqlite="AND session.tenant = i.tenant"),
        races("tenants::rel_i18_a_foreign_renew_changes_nothing"),
        "N1, I18: the sessions of another tenant are unknown",
    ),
    Mutant(
        "session-renewed-as-a-presence",
        both("workers", "renew", "AND s.presence >= i.presence", "", sqlite="AND session.presence >= i.presence"),
        (
            *races("sessions::rel_x9_a_presence_is_opened_beside_a_call_without_it"),
            *presence("rel_x9_a_presence_that_was_opened_is_renewed_by_its_own_beats_alone"),
        ),
        "L18: calls under a worker's name keep no lease alive",
    ),
    Mutant(
        "session-opened-by-another-worker",
        both("workers", "open_session", "AND s.worker = excluded.worker", ""),
        presence("a_session_is_opened_by_its_own_worker_alone"),
        "L12: a session is its worker's own",
    ),
    Mutant(
        "session-opened-by-another-tenant",
        both("workers", "open_session", "AND s.tenant = excluded.tenant", ""),
        presence("a_session_is_opened_by_its_own_worker_alone"),
        "N1, I18: the sessions of another tenant are unknown",
    ),
    Mutant(
        "ended-session-opened-again",
        both("workers", "open_session", "s.state = 0 AND", ""),
        presence("a_session_is_opened_by_its_own_worker_alone"),
        "I6: a session that has ended never comes back",
    ),
    Mutant(
        "close-of-any-tenant",
        both("workers", "close", "AND tenant = :tenant", "AND CAST(:tenant AS text) IS NOT NULL"),
        races("tenants::rel_i18_a_foreign_close_changes_nothing"),
        "N1, I18: the sessions of another tenant are unknown",
    ),
    Mutant(
        "bare-session-forgotten-with-its-lease",
        both("workers", "forget_ended", "q.place = 1 AND q.session = s.id", "q.place = 9 AND q.session = s.id"),
        races("guards::session_that_holds_a_lease_is_kept"),
        "I22: a lease's session is there as long as the lease",
    ),
    Mutant(
        "death-without-expiry",
        both("rescue", "declare_dead", "AND s.expires_at < :now", "", sqlite="AND expires_at < :now"),
        races("sessions::rel_x9_worker_restarts_under_its_name"),
        "I6: nobody is dead who was heard within its lease",
    ),
    Mutant(
        "death-told-twice",
        both("rescue", "declare_dead", "s.state = 0 AND", "", sqlite="state = 0 AND"),
        races("sessions::rel_k6_who_did_it_is_told_by_the_rows"),
        "K6: who has done it is told by the rows returned",
    ),
    Mutant(
        "death-after-a-stop",
        both(
            "rescue",
            "declare_dead",
            "AND p.beat_at >= :now - CAST(:tolerance AS double precision) * s.lease_ms * interval '1 millisecond'",
            "AND CAST(:tolerance AS double precision) > 0",
            sqlite="AND p.beat_at >= :now - :tolerance * session.lease_ms * 1000",
        ),
        ("tests/queue/test_rescue.py::test_a_server_stopped_before_its_verdict_declares_nobody_dead",),
        "rule 14: a server stopped before its verdict was silent itself",
    ),
    Mutant(
        "pulse-without-gap",
        (
            sql("rescue", "beat_pulse", "WHERE s.state = 0", "WHERE s.state = 9", "postgres"),
            sql("rescue", "beat_pulse", "WHERE state = 0", "WHERE state = 9", "sqlite"),
        ),
        races("sessions::rel_k9_our_own_silence_is_not_the_workers_fault"),
        "rule 14: a gap between pulses gives every session a full lease",
    ),
    Mutant(
        "pulse-left-ahead-of-the-clock",
        (
            sql(
                "rescue",
                "beat_pulse",
                "DO UPDATE SET beat_at = excluded.beat_at",
                "DO UPDATE SET beat_at = greatest(pulse.beat_at, excluded.beat_at)",
                "postgres",
            ),
        ),
        races("clock_back::rel_e3_an_hour_back_and_forth"),
        "rule 14: a pulse of the future is none",
        only="postgres",
    ),
    Mutant(
        "rescue-of-the-living",
        both("rescue", "orphans", "s.state <> 0", "s.state >= 0"),
        races("sessions::rel_k9_a_silent_worker_loses_its_job"),
        "I6: only leases of sessions that ended are rescued",
    ),
    Mutant(
        "rescue-waits-for-reports",
        (sql("moves", "lock_free_leases", "FOR UPDATE OF q SKIP LOCKED", "FOR UPDATE OF q", "postgres"),),
        races("sessions::rel_x1_rescue_waits_for_nobody"),
        "rule 6: rescue passes by what is being reported",
    ),
    Mutant(
        "young-leases-given-back",
        (
            sql(
                "workers",
                "old_leases",
                "claimed_at <= :now - CAST(:older_ms AS bigint)",
                "claimed_at <= :now + CAST(:older_ms AS bigint)",
                "postgres",
            ),
            sql(
                "workers",
                "old_leases",
                "AND claimed_at <= :now - :older_ms",
                "AND claimed_at <= :now + :older_ms",
                "sqlite",
            ),
        ),
        races("reports::rel_x5_listed_or_young_leases_stay"),
        "X5: a claim under way is not taken for a lost answer",
    ),
    Mutant(
        "listed-leases-given-back",
        (
            Edit(
                "queue/workers.py",
                'row["session"]) for row in old}.difference(_keys(beats))',
                'row["session"]) for row in old}',
            ),
        ),
        races("reports::rel_x5_listed_or_young_leases_stay"),
        "X5: what a worker names it keeps",
    ),
    Mutant(
        "held-with-any-fence",
        both("workers", "held", "q.fence = i.fence AND", "")
        + both("workers", "held", "q.fence, q.session", "i.fence, q.session"),
        races("reports::rel_k21_old_calls_all_bounce"),
        "K21: a heartbeat for an old fence is told that it is lost",
    ),
    Mutant(
        "held-by-any-session",
        both("workers", "held", "AND q.session = i.session", "")
        + both("workers", "held", "q.fence, q.session", "q.fence, i.session"),
        races("sessions::rel_k5_sessions_of_one_name_are_told_apart"),
        "K5: a heartbeat speaks for its own session",
    ),
    Mutant(
        "start-with-any-fence",
        both("workers", "start", "q.fence = i.fence AND", "", sqlite="queue.fence = i.fence AND"),
        races("reports::rel_k21_old_calls_all_bounce"),
        "K21: a start told for an old fence is not noted",
    ),
    Mutant(
        "start-by-any-session",
        both("workers", "start", "AND q.session = i.session", "", sqlite="AND queue.session = i.session"),
        races("sessions::rel_k5_sessions_of_one_name_are_told_apart"),
        "K5: only the session that holds a job tells its start",
    ),
    Mutant(
        "start-told-again",
        both("workers", "start", "AND q.started_at IS NULL", "", sqlite="AND queue.started_at IS NULL"),
        races("guards::start_is_told_once"),
        "I20: a job begins once in an attempt",
    ),
    Mutant(
        "start-before-the-claim",
        (
            sql("workers", "start", "least(q.claimed_at, :now + interval '1 minute')", "'-infinity'", "postgres"),
            sql(
                "workers",
                "start",
                "max(:now - i.ran_ms * 1000, queue.claimed_at)",
                ":now - i.ran_ms * 1000",
                "sqlite",
                count=2,
            ),
        ),
        ("tests/queue/test_workers.py::test_no_job_began_before_its_claim",),
        "W6: no job began before its claim, whatever its worker says",
    ),
    Mutant(
        "start-prolongs-a-cancel",
        both("workers", "start", "WHEN q.flags & 2 = 2", "WHEN 1 = 2", sqlite="WHEN queue.flags & 2 = 2"),
        races("guards::start_does_not_outlive_a_cancel"),
        "rule 23: the grace of a cancel stands",
    ),
    Mutant(
        "loss-not-counted",
        (
            Edit(
                "queue/moves.py",
                "        attempt=loss.attempt,\n        lost=1,",
                "        attempt=loss.attempt,\n        lost=0,",
            ),
        ),
        races("guards::losses_are_counted_to_the_end"),
        "M13, I10: every lost lease counts",
    ),
    Mutant(
        "loss-uses-an-attempt",
        (Edit("queue/retry.py", "kept = attempt if started else attempt - 1", "kept = attempt"),),
        races("guards::losses_are_counted_to_the_end"),
        "I10: a lease lost before its start uses no attempt",
    ),
    Mutant(
        "losses-without-end",
        (Edit("queue/retry.py", "if lost >= max_lost:", "if lost > max_lost:"),),
        races("guards::losses_are_counted_to_the_end"),
        "I10: at max_lost the job is dead",
    ),
    Mutant(
        "loss-forgets-a-cancel",
        (
            Edit(
                "queue/moves.py",
                '    if lease.cancelling:\n        reason = "Its worker was lost',
                '    if lease is None:\n        reason = "Its worker was lost',
            ),
        ),
        races("guards::lost_while_cancelling"),
        "I17: a cancel that was accepted is never forgotten",
    ),
)
