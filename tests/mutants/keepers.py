"""Guards of keepers and fleets: whose session it is, what is named in a heartbeat, and what ends with what."""

from __future__ import annotations

from tests.mutants.mutant import Edit, Mutant

KEEPER = "tests/worker/test_keeper.py::test_"
STUCK = "tests/worker/test_keeper_stuck.py::test_"
FLEET = "tests/worker/test_fleet.py::test_"
SPOT = "tests/worker/test_spot.py::test_"

MUTANTS = (
    Mutant(
        "a-runner-with-a-job-is-killed-at-its-start",
        (Edit("worker/keeper.py", "self._child is not None and self.ready is not None:", "self.opened.is_set():"),),
        ("tests/worker/test_keeper.py::test_rel_a12_a_runner_that_has_claimed_drains_from_the_start",),
        "W10: what a runner has begun ends before it does",
    ),
    Mutant(
        "a-job-that-kills-draining-runners",
        (Edit("worker/keeper.py", "self.is_draining and self.ready is None:", "self.is_draining and not was_open:"),),
        ("tests/worker/test_keeper.py::test_rel_a12_a_job_that_kills_a_runner_while_it_drains_from_the_start_is_lost",),
        "W10: an attempt that has begun and kills its process is lost",
    ),
    Mutant(
        "a-stop-that-uses-an-attempt",
        (
            Edit(
                "worker/keeper.py",
                "since is given back.\n            self.give_back()",
                "since is given back.\n            self.kill()",
            ),
        ),
        ("tests/worker/test_keeper.py::test_rel_a12_what_a_runner_began_unheard_before_its_drain_is_given_back",),
        "A12: a stop uses no attempt",
    ),
    Mutant(
        "lost-by-another-fence",
        (
            Edit(
                "worker/held.py",
                "[(job.job_id, job.fence) for job in named if job.job_id in lost]",
                "[job for job in self._leases if job[0] in lost]",
            ),
        ),
        (f"{KEEPER}a_job_claimed_anew_is_not_lost_by_an_answer_about_its_last_lease",),
        "L14: an answer about a lease that is over takes no other away",
    ),
    Mutant(
        "lost-is-named-again",
        (
            Edit(
                "worker/keeper.py",
                "self.held.drop_lost(answer.lost, named)",
                "[(job.job_id, job.fence) for job in named if job.job_id in answer.lost]",
            ),
        ),
        (f"{KEEPER}cancels_and_lost_leases_are_passed_on",),
        "L14: what is lost is no longer held",
    ),
    Mutant(
        "dead-session-goes-on",
        (
            Edit(
                "worker/session.py",
                "self._link.heartbeat(request)\n"
                "            except (NotFound, Conflict):\n"
                "                self.id = None\n                return None\n",
                "self._link.heartbeat(request)\n",
            ),
        ),
        (f"{KEEPER}after_the_end_of_its_session_a_runner_gets_another[error0]",),
        "W3: a session that has ended is followed by another",
    ),
    Mutant(
        "death-without-last-words",
        (Edit("worker/keeper.py", "lost=not self._gives_back, last_beat=self._beat()", "lost=not self._gives_back"),),
        (f"{KEEPER}what_a_dead_runner_had_begun_is_told_before_its_session_ends",),
        "B7: a job that kills its process at once counts as lost",
    ),
    Mutant(
        "death-is-a-departure",
        (Edit("worker/keeper.py", "close(lost=not self._gives_back,", "close(lost=False,"),),
        (f"{KEEPER}the_session_of_a_dead_runner_is_lost_at_once",),
        "A8: what a dead process had begun is lost, and told at once",
    ),
    Mutant(
        "speaking-runner-is-overruled",
        (Edit("worker/keeper.py", "if silent_s >= SILENT_S and self.opened.is_set():", "if self.opened.is_set():"),),
        (f"{STUCK}a_runner_that_ticks_stops_its_tasks_itself",),
        "W9: a keeper reports only what its runner cannot",
    ),
    Mutant(
        "stuck-runner-killed-unheard",
        (Edit("worker/keeper.py", " and not self._reports", ""),),
        (f"{STUCK}the_report_of_a_stuck_attempt_is_said_until_it_is_heard",),
        "W9: the session lives until the zombie is reported",
    ),
    Mutant(
        "stuck-runner-keeps-its-line",
        (Edit("worker/keeper.py", "*self.held.drop_waiting(), ", ""),),
        (f"{STUCK}jobs_that_wait_in_a_stuck_runner_go_to_others",),
        "W9: what a stuck process cannot begin goes to others",
    ),
    Mutant(
        "still-claims-are-kept",
        (Edit("worker/keeper.py", "now - self._ticked_at >= self._settings.health_seconds:", "False:"),),
        (f"{STUCK}rel_k18_a_runner_that_stands_still_without_a_task_is_replaced",),
        "K18: a worker whose claims stand still is replaced",
    ),
    Mutant(
        "drain-without-end",
        (Edit("worker/keeper.py", "            if self._is_late(now, silent_s):\n                child.kill()\n", ""),),
        (f"{STUCK}a_silent_runner_is_killed_when_its_drain_is_over",),
        "W10: a drain ends, whatever holds the interpreter",
    ),
    Mutant(
        "import-tried-for-ever",
        (Edit("worker/fleet.py", "                self._raise_if_hopeless(ending)\n", ""),),
        (f"{FLEET}a_module_that_cannot_be_imported_at_first_ends_the_fleet[failed]",),
        "W3: a worker that cannot begin at all says so and ends",
    ),
    Mutant(
        "busy-ones-leave-first",
        (Edit("worker/fleet.py", "0 if keeper is None else len(keeper.held)", "0"),),
        (f"{FLEET}scaling_out_is_at_once_and_in_by_draining_idle_ones_first",),
        "H8: scaling in takes the idle first",
    ),
    Mutant(
        "scaled-while-stopping",
        (
            Edit(
                "worker/fleet.py",
                "        if self._is_stopping:\n            return\n        # Those",
                "        # Those",
            ),
        ),
        (f"{FLEET}a_stopping_fleet_is_not_scaled",),
        "W10: a fleet that stops starts nobody",
    ),
    Mutant(
        "neighbours-notice",
        (
            Edit(
                "worker/spot.py",
                "return not machines or self._machine is None or self._machine in machines",
                "return True",
            ),
        ),
        (f"{SPOT}azure_names_the_machines_it_takes",),
        "W11: another machine's notice is not ours",
    ),
)
