"""Guards of duties: the lease on the table, the trust in it, and the share of each server."""

from __future__ import annotations

from tests.mutants.mutant import Edit, Mutant, both, sql

QUEUE = "tests/queue/test_duties.py::test_"
RACES = "tests/queue/races/test_duties.py::test_"
LOOPS = "tests/engine/test_loops.py::test_"
SHARING = "tests/engine/test_loops_sharing.py::test_"
LOOKS = "tests/engine/test_looks.py::test_"
TRUSTED = "tests/engine/test_loops_trusted.py::test_"
DUTIES = "tests/engine/test_loops_duties.py::test_"
KINDS = ("sqlite", "postgres")


def on_both(*tests: str) -> tuple[str, ...]:
    """Return the tests on both databases."""
    return tuple(f"{test}[{kind}]" for test in tests for kind in KINDS)


def python(file: str, old: str, new: str) -> tuple[Edit]:
    """Return the edit of a module in `engine/`."""
    return (Edit(f"engine/{file}.py", old, new),)


MUTANTS = (
    Mutant(
        "duty-taken-from-the-living",
        both("duties", "take", "WHERE d.expires_at <= :now OR", "WHERE true OR"),
        on_both(f"{QUEUE}a_free_duty_is_taken_once"),
        "U3: a duty is taken only when its lease is over",
    ),
    Mutant(
        "duty-taken-in-the-same-term",
        both("duties", "take", "term = d.term + 1", "term = d.term"),
        on_both(f"{QUEUE}rel_i27_a_lease_that_is_over_is_taken_with_the_next_term"),
        "I14: the term rises with every taking",
    ),
    Mutant(
        "duty-renewed-by-name",
        (
            sql("duties", "renew", "d.holder = CAST(:holder AS uuid) AND d.term = i.term", "true", "postgres"),
            sql(
                "duties",
                "renew",
                "AND d.holder = CAST(:holder AS uuid) AND d.term = l.term",
                "AND CAST(:holder AS uuid) IS NOT NULL",
                "postgres",
            ),
            sql(
                "duties",
                "renew",
                "AND duty.holder = :holder AND duty.term = i.term",
                "AND :holder IS NOT NULL",
                "sqlite",
            ),
        ),
        on_both(
            f"{QUEUE}rel_k4_a_renewal_of_a_lost_duty_finds_no_row",
            f"{LOOPS}a_released_duty_goes_to_another_server",
        ),
        "K4, M4: renewing goes by holder and term",
    ),
    Mutant(
        "duty-renewed-in-any-term",
        (
            sql("duties", "renew", " AND d.term = i.term", "", "postgres"),
            sql("duties", "renew", " AND duty.term = i.term", "", "sqlite"),
        ),
        on_both(f"{QUEUE}rel_k4_an_old_term_of_the_same_holder_is_refused"),
        "I14: an old term of the same holder is over",
    ),
    Mutant(
        "duty-held-by-a-name",
        (
            Edit(
                "queue/duties.py",
                "names=sorted(names), holder=holder,",
                "names=sorted(names), holder=UUID(int=sum(server.encode())),",
            ),
            Edit(
                "queue/duties.py",
                "SQL.renew, held=_rows(held), holder=holder,",
                'SQL.renew, held=_rows(held), holder=UUID(int=sum(b"same")),',
            ),
        ),
        on_both(f"{QUEUE}rel_k5_three_servers_of_one_name_have_one_duty"),
        "K5, M5: a holder is a start of a process, not a host",
    ),
    Mutant(
        "duty-resigned-by-name",
        (
            sql("duties", "resign", "d.holder = CAST(:holder AS uuid) AND d.term = i.term", "true", "postgres"),
            sql(
                "duties",
                "resign",
                "AND d.holder = CAST(:holder AS uuid) AND d.term = l.term",
                "AND CAST(:holder AS uuid) IS NOT NULL",
                "postgres",
            ),
            sql(
                "duties",
                "resign",
                "AND duty.holder = :holder AND duty.term = i.term",
                "AND :holder IS NOT NULL",
                "sqlite",
            ),
        ),
        on_both(f"{QUEUE}a_foreign_resignation_changes_nothing"),
        "rule 8: only the holder, in its term, can resign",
    ),
    Mutant(
        "duty-renewed-in-any-order",
        (
            sql(
                "duties", "renew", "ORDER BY d.name FOR UPDATE OF d", "ORDER BY d.name DESC FOR UPDATE OF d", "postgres"
            ),
        ),
        (f"{RACES}a_renewal_and_a_taking_that_wait_for_a_third_do_not_block_each_other",),
        "rule 6: duties are locked in the order of their names",
    ),
    Mutant(
        "taking-waits",
        (Edit("queue/duties.py", "    except Contention:", "    except NotFound:"),),
        (f"{RACES}rel_b4_taking_waits_for_nobody_long",),
        "U3: a duty whose row is locked is not to be had now",
    ),
    Mutant(
        "duty-of-the-future-waited-for",
        (
            sql(
                "duties",
                "take",
                "OR d.heartbeat_at > :now + CAST(:lease_ms AS bigint) * interval '1 millisecond'",
                "",
                "postgres",
            ),
        ),
        (f"{QUEUE}rel_e3_a_duty_of_the_future_is_free",),
        "Z9: a clock that goes back leaves no duty without a holder",
    ),
    Mutant(
        "dead-servers-counted",
        both("duties", "beat_server", "WHERE expires_at > :now AND id", "WHERE id"),
        on_both(f"{QUEUE}servers_that_live_are_counted"),
        "U2: the share is of those that live",
    ),
    Mutant(
        "trust-from-the-answer",
        python(
            "loops",
            "held.pop(name).renewed(at, until_s=until_s)",
            "held.pop(name).renewed(at, until_s=self._time.monotonic() + self._trust_s)",
        ),
        on_both(f"{LOOPS}a_renewal_that_is_answered_late_is_trusted_from_its_sending"),
        "rule 9: trust counts from sending",
    ),
    Mutant(
        "trust-without-watch",
        python("holding", "while (left_s := self.until_s - self._time.monotonic()) > 0:", "while left_s := 1.0:"),
        on_both(f"{LOOPS}rel_k22_trust_counts_from_sending"),
        "K22: a late renewal stops the duty",
    ),
    Mutant(
        "lost-duty-goes-on",
        python("loops", 'self._drop(held.values(), "another server has it, or it was released")', "pass"),
        on_both(f"{LOOPS}a_released_duty_goes_to_another_server"),
        "U5: a renewal that finds no row stops the duty at once",
    ),
    Mutant(
        "woken-without-a-look-at-trust",
        python("holding", "self.check()  # the process may have been stopped while it slept", "pass"),
        on_both(f"{LOOPS}rel_k4_a_holder_that_was_stopped_stops_when_it_goes_on"),
        "B3: a holder that was stopped does not begin a run",
    ),
    Mutant(
        "statement-without-trust",
        (
            Edit(
                "engine/trusted.py", "self._check()\n        return await self._db.fetch", "return await self._db.fetch"
            ),
        ),
        on_both(f"{TRUSTED}no_statement_without_trust"),
        "rule 9: no statement beyond the trust",
    ),
    Mutant(
        "transaction-without-trust",
        (
            Edit(
                "engine/trusted.py",
                "self._check()\n        async with self._db.transaction",
                "async with self._db.transaction",
            ),
        ),
        on_both(f"{TRUSTED}no_transaction_without_trust"),
        "rule 9: no transaction beyond the trust",
    ),
    Mutant(
        "statement-of-a-transaction-without-trust",
        (
            Edit(
                "engine/trusted.py",
                "self._check()\n        return await self._statements.fetch",
                "return await self._statements.fetch",
            ),
        ),
        on_both(f"{TRUSTED}no_statement_of_a_transaction_without_trust"),
        "rule 9: no statement beyond the trust",
    ),
    Mutant(
        "commit-without-trust",
        (Edit("engine/trusted.py", "self._check)\n            self._check()", "self._check)"),),
        on_both(
            f"{TRUSTED}no_commit_without_trust", f"{LOOPS}rel_b3_a_transaction_open_when_trust_ends_is_rolled_back"
        ),
        "rule 9: no COMMIT beyond the trust",
    ),
    Mutant(
        "ending-without-giving-up",
        python(
            "loops",
            "await self._resign([holding.handed_over(self._holder) for holding in named if holding.term], to)",
            "pass",
        ),
        on_both(f"{SHARING}a_server_that_ends_hands_over_at_once"),
        "U6: a graceful stop hands over at once",
    ),
    Mutant(
        "share-ignored-in-taking",
        python("loops", "room = max(self._share - len(self._held) - len(mine), 0)", "room = len(free)"),
        on_both(f"{SHARING}a_duty_that_nobody_else_wants_is_kept_beyond_the_share"),
        "U2: no more than its share while others live",
    ),
    Mutant(
        "share-never-given-up",
        python("loops", "beyond = len(held) - self._share if", "beyond = 0 if"),
        tuple(f"{SHARING}nobody_keeps_more_than_its_share[{kind}-2-4]" for kind in KINDS),
        "U2: what is beyond the share is given up",
    ),
    Mutant(
        "duties-rotated-at-each-notice",
        python("loops", "or now_s < self._gives_at_s", ""),
        on_both(f"{SHARING}a_notice_gives_up_no_more_than_a_heartbeat_does"),
        "U7: at most one duty is passed on in each heartbeat",
    ),
    Mutant(
        "duty-handed-back-at-once",
        python("loops", "return lately and other == holding.handed_by and not self._stopping", "return False"),
        tuple(f"{SHARING}no_duty_is_without_a_holder_while_duties_rotate[{kind}-5-5]" for kind in KINDS),
        "U7: a duty passed on does not come back at once",
    ),
    Mutant(
        "ending-without-handing-back",
        python(
            "loops",
            "return lately and other == holding.handed_by and not self._stopping",
            "return lately and other == holding.handed_by",
        ),
        on_both(f"{SHARING}a_server_that_ends_hands_back_what_it_was_just_handed"),
        "U6: a server that ends leaves no duty to chance",
    ),
    Mutant(
        "unwanted-duty-left-alone",
        python("loops", "return mine + free[:room] + unwanted", "return mine + free[:room]"),
        on_both(f"{SHARING}a_duty_that_nobody_else_wants_is_kept_beyond_the_share"),
        "I27: no duty stays without a holder",
    ),
    Mutant(
        "lost-duty-taken-back",
        python("loops", "self._left[name] = self._time.monotonic() + self._leave_s", "pass"),
        on_both(f"{LOOPS}a_released_duty_goes_to_another_server"),
        "a released duty is left to others for a while",
    ),
    Mutant(
        "stray-duty-kept",
        python("loops", "return mine + free[:room] + unwanted", "return free[:room] + unwanted"),
        on_both(f"{LOOPS}a_taking_whose_answer_was_lost_is_made_anew"),
        "rule 4: a taking of unknown fate is made anew",
    ),
    Mutant(
        "duty-handed-to-the-dead",
        both(
            "duties",
            "resign",
            "ON s.id = i.successor AND s.expires_at > :now",
            "ON s.id = i.successor",
        ),
        on_both(f"{QUEUE}a_duty_is_handed_to_a_successor_that_lives"),
        "U6: a duty is handed to a server that lives, else to anybody",
    ),
    Mutant(
        "duty-handed-over-in-its-term",
        (
            sql("duties", "resign", "ELSE d.term + 1 END", "ELSE d.term END", "postgres"),
            sql("duties", "resign", "ELSE duty.term + 1 END", "ELSE duty.term END", "sqlite"),
        ),
        on_both(f"{QUEUE}a_duty_is_handed_to_a_successor_that_lives"),
        "U5: the term rises when the holder changes",
    ),
    Mutant(
        "handed-duty-refused",
        both("duties", "take", "OR d.holder = excluded.holder OR", "OR"),
        on_both(f"{QUEUE}a_duty_is_handed_to_a_successor_that_lives"),
        "U6: the successor takes what was handed to it",
    ),
    Mutant(
        "rotated-to-nobody",
        python("loops", "return self._successors(held[:1], 1)", "return dict.fromkeys(held[:1], self._holder)"),
        tuple(f"{SHARING}no_duty_is_without_a_holder_while_duties_rotate[{kind}-2-6]" for kind in KINDS),
        "U7: a duty whose turn is over goes to another server at once",
    ),
    Mutant(
        "write-committed-without-trust",
        python("trusted", "if query.writes:", "if query.name == 'none':"),
        on_both(f"{TRUSTED}a_statement_on_its_way_when_trust_ends_changes_nothing"),
        "B3: a statement that was on its way when the trust ended is undone",
    ),
    Mutant(
        "others-never-told",
        python("looks", "if soon.items() - self._told.items():", "if False:"),
        on_both(f"{LOOKS}others_are_told_once_of_what_is_due_soon"),
        "U9: who looks for all tells the others what is due",
    ),
    Mutant(
        "failed-duty-ends",
        python("holding", "except Exception as error:", "except KeyError as error:"),
        on_both(f"{LOOPS}an_exception_in_a_duty_is_logged_and_counted"),
        "U9: an exception is logged and the duty goes on",
    ),
    Mutant(
        "hung-round-waited-for",
        python("loops", "return await self._within(step(), self._settings.lease_seconds)", "return await step()"),
        on_both(f"{LOOPS}a_database_that_does_not_answer_is_asked_again"),
        "rule 24: a round has a bound",
    ),
    Mutant(
        "woken-before-the-commit",
        (
            Edit(
                "engine/duty.py",
                "promoted = await timers.promote(db, limit=most)\n",
                "wake.ready(0, 0)\n        promoted = await timers.promote(db, limit=most)\n",
            ),
        ),
        on_both(f"{DUTIES}waking_comes_after_the_commit"),
        "waking comes after the commit",
    ),
)
