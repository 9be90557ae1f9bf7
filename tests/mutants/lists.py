"""Guards of what people ask: statistics that lose nothing, lists that are complete and show one tenant's."""

from __future__ import annotations

from tests.mutants.mutant import Edit, Mutant, both, races, sql

FOREIGN = "I18: another tenant's is like one that never was"


def tests(file: str, *names: str) -> tuple[str, ...]:
    """Return tests of the queue, on both databases."""
    return tuple(
        f"tests/queue/test_{file}.py::test_{name}[{kind}]" for name in names for kind in ("sqlite", "postgres")
    )


def server(*names: str) -> tuple[str, ...]:
    """Return tests of why jobs wait over HTTP, on both databases."""
    return tuple(
        f"tests/server/test_waiting.py::test_{name}[{kind}]" for name in names for kind in ("sqlite", "postgres")
    )


MUTANTS = (
    Mutant(
        "ids-ending-of-another-tenant",
        (sql("history", "ending_in", "l.tenant = :tenant AND", "CAST(:tenant AS text) IS NOT NULL AND", "both"),),
        tests("explain", "jobs_are_found_by_the_end_of_their_id"),
        FOREIGN,
    ),
    Mutant(
        "explained-by-workers-of-another-tenant",
        (
            sql("explain", "capabilities", "s.tenant = :tenant", "CAST(:tenant AS text) IS NOT NULL", "postgres"),
            sql("explain", "capabilities", "n.tenant = :tenant", ":tenant IS NOT NULL", "sqlite", count=2),
        ),
        tests("explain", "workers_that_claim_no_more_do_not_count"),
        "X9: who serves another tenant does not serve this one",
    ),
    Mutant(
        "explained-by-workers-that-are-silent",
        (
            sql("explain", "capabilities", "s.expires_at > :now", ":now > s.started_at", "postgres"),
            sql("explain", "capabilities", "n.expires_at > :now", ":now > n.started_at", "sqlite", count=2),
        ),
        tests("explain", "workers_that_claim_no_more_do_not_count"),
        "X9: a worker that was not heard for its lease serves nothing",
    ),
    Mutant(
        "explained-by-all-that-workers-say",
        both("explain", "capabilities", "c.upto - c.bytes < :most", "0 < :most", sqlite="c.upto < :most"),
        tests("explain_bounds", "what_workers_say_is_read_up_to_a_bound"),
        "H4: no more is read of what workers say than the bound, and one",
    ),
    Mutant(
        "explained-by-nobody-where-one-says-much",
        (sql("explain", "capabilities", "c.upto - c.bytes < :most", "c.upto < :most", "postgres"),),
        ("tests/queue/test_explain_bounds.py::test_one_worker_that_says_more_than_the_bound_is_looked_at[postgres]",),
        "X9: where a worker lives, one is looked at",
        only="postgres",
    ),
    Mutant(
        "explained-by-all-workers",
        (
            sql("explain", "capabilities", "s.id LIMIT :limit", "s.id LIMIT :limit + 1000", "postgres"),
            sql("explain", "capabilities", "c.place < :limit", "c.place < :limit + 1000", "sqlite"),
        ),
        tests("explain_bounds", "no_more_workers_are_looked_at_than_the_bound"),
        "H4: no more workers are looked at than the bound",
    ),
    Mutant(
        "explained-by-those-who-came-last",
        (sql("explain", "capabilities", "(ORDER BY z.started_at, z.id)", "(ORDER BY z.started_at DESC)", "postgres"),),
        ("tests/queue/test_explain_bounds.py::test_who_comes_later_hides_nobody[postgres]",),
        "X9: who comes later hides nobody",
        only="postgres",
    ),
    Mutant(
        "missing-though-not-all-were-looked-at",
        (Edit("queue/explain.py", " or not looked.complete:", ":"),),
        tests("explain_bounds", "what_workers_say_is_read_up_to_a_bound"),
        "X9: nothing is said to be missing before all were looked at",
    ),
    Mutant(
        "texts-read-for-each-worker",
        (
            Edit(
                "queue/explain.py",
                "texts[field, kind[field]] = texts.get((field, kind[field]), 0) | bit",
                'texts[field, kind[field] + "," * number] = bit',
            ),
        ),
        tests("explain_bounds", "a_text_is_read_once_for_all_lanes"),
        "X9: lanes and workers are not compared pair by pair",
    ),
    Mutant(
        "lanes-looked-at-without-giving-way",
        (
            Edit(
                "queue/explain.py",
                "            found.append(StuckLane(*route, reason))\n        await give_way()",
                "            found.append(StuckLane(*route, reason))",
            ),
        ),
        tests("explain_bounds", "a_text_is_read_once_for_all_lanes"),
        "M4: others get their turn after each lane",
    ),
    Mutant(
        "texts-read-without-giving-way",
        (
            Edit(
                "queue/explain.py",
                "                naming[name] |= kinds\n            await give_way()",
                "                naming[name] |= kinds",
            ),
        ),
        tests("explain_bounds", "a_text_is_read_once_for_all_lanes"),
        "M4: others get their turn after each text",
    ),
    Mutant(
        "stuck-lanes-without-bound",
        (sql("explain", "ready_lanes", "c.upto <= :most OR", "c.upto <= :most + c.upto OR"),),
        tests("explain_bounds", "lanes_are_read_as_they_are_shown"),
        "H4: no more is read than an answer holds, and one lane",
    ),
    Mutant(
        "reasons-without-turns",
        (
            Edit(
                "server/jobs.py", "explaining.turn(call.tenant, call.principal.key_id)", "explaining.place(call.tenant)"
            ),
            Edit("server/jobs.py", "async with call.engine.acts.explaining", "with call.engine.acts.explaining"),
        ),
        server("looks_for_reasons_take_turns"),
        "M4: of one tenant two look at workers at a time",
    ),
    Mutant(
        "a-job-refused-for-its-reasons",
        (Edit("server/jobs.py", "except (TooMany, Unavailable):", "except KeyError:"),),
        server("looks_for_reasons_take_turns", "only_so_many_wait_for_a_look"),
        "M4: a job is shown where there is no turn to look why it waits",
    ),
    Mutant(
        "reasons-in-one-go",
        (
            Edit(
                "server/jobs.py",
                "give_way=call.pace().give_way",
                "give_way=lambda: __import__('asyncio').sleep(0)",
                count=2,
            ),
        ),
        server("large_fleets_are_looked_at_in_turns"),
        "M4: what is computed for one caller is cut into turns",
    ),
    Mutant(
        "minutes-counted-once",
        (Edit("queue/stats.py", 'row["rolled_at"] - LATE', 'row["rolled_at"]'),),
        tests("stats", "a_late_commit_is_still_counted"),
        "P37: what commits after its minute has closed is counted",
    ),
    Mutant(
        "minutes-that-shrink",
        (sql("stats", "keep", "dead = greatest(s.dead, excluded.dead)", "dead = excluded.dead"),),
        tuple(f"tests/queue/test_stats.py::test_a_minute_never_counts_less[{k}-purge]" for k in ("sqlite", "postgres")),
        "P37: a job that died was counted, also when it has been purged since",
    ),
    Mutant(
        "series-of-another-tenant",
        both("stats", "series", "AND tenant = :tenant", "AND CAST(:tenant AS text) IS NOT NULL"),
        tests("stats", "minutes_are_told_by_tenant_and_queue"),
        FOREIGN,
    ),
    Mutant(
        "ends-read-without-the-settled-minutes",
        (Edit("queue/stats.py", "until=settled)", "until=first)"),),
        tests("stats", "the_window_counts_each_end_once"),
        "P37: a window is made of all its minutes",
    ),
    Mutant(
        "beats-that-count-nothing",
        (
            sql("workers", "renew", "+ i.completed", "", "postgres"),
            sql("workers", "renew", "+ i.completed", "", "sqlite"),
        ),
        tests("fleet", "the_counts_of_several_beats_are_added"),
        "H1: a worker's counts are what its beats said",
    ),
    Mutant(
        "silent-beats-hear-no-cancel",
        both("workers", "cancelled", "flags & 2 = 2", "flags & 2 = 9"),
        tests("workers", "rel_x2_who_does_not_say_what_it_holds_is_told_every_cancel"),
        "X2: a cancel is told in the next answer to a heartbeat",
    ),
    Mutant(
        "bare-callers-are-idle",
        (sql("fleet", "list_workers", "WHERE a.worker = s.worker), 0) AS alone", "WHERE a.worker = ''), 0) AS alone"),),
        tests("fleet", "a_bare_caller_is_shown_with_the_jobs_it_holds"),
        "H2: how busy a worker is, is computed",
    ),
    Mutant(
        "jobs-of-another-tenants-bare-caller",
        both("fleet", "held_alone", "AND s.tenant = :tenant", "AND CAST(:tenant AS text) IS NOT NULL"),
        tests("fleet", "a_bare_caller_is_shown_with_the_jobs_it_holds"),
        FOREIGN,
    ),
    Mutant(
        "workers-of-another-tenant",
        (sql("fleet", "list_workers", "AND s.tenant = :tenant", "AND CAST(:tenant AS text) IS NOT NULL"),),
        tests("fleet", "bare_callers_and_strangers_are_in_no_list"),
        FOREIGN,
    ),
    Mutant(
        "queues-of-another-tenant",
        (sql("queues", "list_queues", "WHERE l.tenant = :tenant", "WHERE CAST(:tenant AS text) IS NOT NULL"),),
        tests("queues", "a_paused_tenant_pauses_its_queues"),
        FOREIGN,
    ),
    Mutant(
        "count-of-another-tenants-ends",
        both("history", "own_done", "WHERE l.tenant = :tenant", "WHERE CAST(:tenant AS text) IS NOT NULL"),
        tests("lists", "a_list_reads_no_other_tenants_ends"),
        FOREIGN,
    ),
    Mutant(
        "count-of-another-tenants-timers",
        both("history", "own_timed", "WHERE l.tenant = :tenant", "WHERE CAST(:tenant AS text) IS NOT NULL"),
        tests("list_bytes", "a_count_is_the_same_whatever_others_have"),
        "M2: what others have changes neither a count nor that it is exact",
    ),
    Mutant(
        "lists-that-read-what-they-do-not-show",
        (Edit("queue/views.py", "if total > LIST_BYTES and count:", "if total < 0 and count:"),),
        tuple(
            f"tests/queue/test_list_bytes.py::test_a_list_of_jobs_reads_what_it_shows[{kind}-{place}]"
            for kind, place in (("sqlite", "queued"), ("postgres", "dead"))
        ),
        "H4: no more is read than an answer holds, and one job",
    ),
    Mutant(
        "attempts-of-a-job-without-bound",
        (sql("history", "attempts", "c.upto <= :most OR", "c.upto <= :most + c.upto OR"),),
        tests("list_bytes", "attempts_of_a_job_come_in_pages"),
        "H5: errors and traces end a page where it is full",
    ),
    Mutant(
        "ends-of-one-fence-without-bound",
        (sql("history", "attempts", "<= (c.fence, c.run, c.unclaimed)", "<= (c.fence, 32767, c.unclaimed)"),),
        tuple(
            f"tests/queue/test_list_bytes.py::test_ends_without_a_claim_come_in_pages[{kind}-0]"
            for kind in ("sqlite", "postgres")
        ),
        "H5: a page has as many ends of one fence as fit",
    ),
    Mutant(
        "ends-of-one-fence-left-out",
        (sql("history", "attempts", "(:fence, :run, :unclaimed)", "(:fence, :run + 30000, :unclaimed)", count=2),),
        tuple(
            f"tests/queue/test_list_bytes.py::test_ends_without_a_claim_come_in_pages[{kind}-0]"
            for kind in ("sqlite", "postgres")
        ),
        "H5: the pages of a job's attempts are complete together",
    ),
    Mutant(
        "audit-without-bound",
        both("audit", "list_of_tenant", "c.upto <= :most OR", "c.upto <= :most + c.upto OR"),
        tests("list_bytes", "an_audit_reads_what_it_shows"),
        "H4: no more is read than an answer holds, and one entry",
    ),
    Mutant(
        "workers-without-bound",
        (sql("fleet", "list_workers", "c.upto <= :most OR", "c.upto <= :most + c.upto OR"),),
        tests("list_bytes", "workers_are_read_as_they_are_shown"),
        "H4: no more is read than an answer holds, and one worker",
    ),
    Mutant(
        "texts-of-workers-that-are-not-shown",
        (
            sql(
                "fleet", "list_workers", "SELECT p.worker, p.session, CASE", "SELECT p.worker, p.session, s.tasks, CASE"
            ),
        ),
        ("tests/queue/test_list_bytes.py::test_a_list_of_workers_holds_few_texts",),
        "H4: what is not shown is not held in memory",
    ),
    Mutant(
        "statuses-cut-by-texts",
        (Edit("server/workers.py", ", with_texts=False)", ")"),),
        ("tests/server/test_people.py::test_the_status_of_every_worker_is_told",),
        "H4: a list is not cut by what it does not show",
    ),
    Mutant(
        "listed-in-a-state-that-was-left",
        (Edit("queue/history.py", "if not where.states or job.state in where.states]", "if job.state]"),),
        races("timers::rel_x16_a_job_that_left_the_state_asked_for_is_not_listed[*]"),
        "P9: a list shows jobs in the states asked for",
    ),
    Mutant(
        "jobs-that-moved-are-not-listed",
        (Edit("queue/history.py", "if key.id not in rows]", "if False]"),),
        races("timers::rel_x16_listed_beside_promotion[*-1000-1]"),
        "P9: a job that goes forward while a list is read is in it",
    ),
    Mutant(
        "attempts-of-another-tenant",
        (
            sql("attempts", "ended_between", "l.tenant = :tenant", "CAST(:tenant AS text) IS NOT NULL", "postgres"),
            sql("attempts", "ended_between", "l.tenant = :tenant", ":tenant IS NOT NULL", "sqlite", count=3),
        ),
        tests("lists", "attempts_by_each_filter"),
        FOREIGN,
    ),
    Mutant(
        "acts-of-another-tenant",
        (sql("recent", "acts_since", "l.tenant = :tenant", "CAST(:tenant AS text) IS NOT NULL"),),
        tests("lists", "recent_acts_are_of_one_tenant"),
        FOREIGN,
    ),
    Mutant(
        "short-page-that-ends-the-list",
        (Edit("queue/history.py", "floor if self._floors else None", "None"),),
        (
            "tests/queue/test_lists.py::test_a_filter_that_matches_little_gives_short_pages[sqlite-done]",
            "tests/queue/test_lists.py::test_a_filter_that_matches_little_gives_short_pages[postgres-dead]",
        ),
        "P9: the pages of a list are complete together",
    ),
    Mutant(
        "page-below-its-floor",
        (Edit("queue/history.py", "if job_id >= floor)", "if job_id)"),),
        (
            "tests/queue/test_lists.py::test_a_place_cut_short_cuts_the_page[sqlite]",
            "tests/queue/test_lists.py::test_a_place_cut_short_cuts_the_page[postgres]",
        ),
        "P9: a page shows nothing below what was read of every place",
    ),
    Mutant(
        "timers-not-read-again",
        (Edit("queue/history.py", "PLACES.index(dense[0]) :], _IN_TIMER]", "PLACES.index(dense[0]) :]]"),),
        races("timers::rel_x16_listed_beside_a_failure[*-floor_queued]"),
        "P9: a job that fails while a list is read is in it",
    ),
    Mutant(
        "ends-not-read-again",
        (Edit("queue/history.py", "if any(place.is_live for place in dense):", "if False:"),),
        races("timers::rel_x16_listed_beside_promotion[*-1-1]"),
        "P9: a job that ends while a list is read is in it",
    ),
    Mutant(
        "statistics-swept-young",
        (sql("retention", "forget_stats", ":now - :age_ms * 1000", ":now - :age_ms * 0", "sqlite"),),
        ("tests/queue/test_retention.py::test_statistics_and_the_record_of_acts_go_with_their_days[sqlite]",),
        "M27: what is younger than its days stays",
        only="sqlite",
    ),
)
