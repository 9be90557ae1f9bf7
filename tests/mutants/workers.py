"""Guards of a worker: leases that are gone, jobs given back, reports that are told once and not lost."""

from __future__ import annotations

from tests.mutants.mutant import Edit, Mutant

LEASE = "tests/worker/test_runner_lease.py::test_"
LEAVING = "tests/worker/test_runner_leaving.py::test_"
HELD = "tests/worker/test_claims_holdings.py::test_"

MUTANTS = (
    Mutant(
        "nohup-undone-by-servers",
        (Edit("server/run.py", "if signal.getsignal(signal.SIGHUP) != signal.SIG_IGN:", "if True:"),),
        ("tests/server/process/test_stopping.py::test_rel_a12_hup_is_ignored_where_it_was_before",),
        "A12: a signal that was ignored before is ignored",
    ),
    Mutant(
        "nohup-undone-by-workers",
        (Edit("worker/run.py", "[] if signal.getsignal(signal.SIGHUP) == signal.SIG_IGN else ", ""),),
        ("tests/worker/process/test_stopping.py::test_rel_a12_hup_is_ignored_where_it_was_before",),
        "A12: a signal that was ignored before is ignored",
    ),
    Mutant(
        "worker-runs-on-without-a-lease",
        (
            Edit(
                "worker/runner.py",
                '        for lease in stopping:\n            self._pools.stop(lease, "lost")\n',
                "",
            ),
        ),
        (f"{LEASE}rel_b1_a_lease_not_renewed_stops_exclusive_bodies[sqlite-task]",),
        "B1, L14: an exclusive body stops when its lease is gone",
    ),
    Mutant(
        "worker-stops-what-is-not-exclusive",
        (
            Edit(
                "worker/runner.py",
                "holdings.lapse(self._pools.exclusive_leases())",
                "holdings.lapse(holdings.unfinished)",
            ),
        ),
        (f"{LEASE}rel_b1_a_lease_not_renewed_lets_bodies_go_on[sqlite]",),
        "L14: what runs goes on when servers are away",
    ),
    Mutant(
        "worker-begins-in-doubt",
        (Edit("worker/runner.py", "may_begin=lambda: self._holdings.trusted", "may_begin=lambda: True"),),
        (f"{LEASE}rel_d2_what_was_claimed_ahead_is_not_begun_in_doubt[sqlite]",),
        "L14, D2: what was claimed ahead is not begun while the lease is in doubt",
    ),
    Mutant(
        "worker-forgets-reports-of-a-lapsed-lease",
        (
            Edit(
                "worker/runner.py",
                "        self._claims.recall()\n        return now + SECOND_S",
                "        self._reports.forget()\n        self._claims.recall()\n        return now + SECOND_S",
            ),
        ),
        (f"{LEASE}rel_b1_an_end_that_is_known_is_told_though_the_lease_lapsed[sqlite]",),
        "B1, Z3: reports are repeated until they are answered",
    ),
    Mutant(
        "worker-runs-a-job-beside-its-earlier-body",
        (
            Edit(
                "worker/holdings.py",
                "        return [job for job in jobs if job.id not in self._lingering]",
                "        return list(jobs)",
            ),
        ),
        (f"{HELD}a_job_claimed_again_waits_for_its_earlier_body",),
        "a job does not run twice at once in one worker",
    ),
    Mutant(
        "worker-loses-the-report-of-a-dead-loop",
        (
            Edit(
                "worker/reports.py", "self._wrapper.put_back([stamped(part, opened.session) for part in parts])", "pass"
            ),
        ),
        ("tests/worker/test_runner.py::test_rel_k18_a_report_survives_the_death_of_its_loop[sqlite]",),
        "K18: what a loop was telling is told by the next",
    ),
    Mutant(
        "worker-leaves-before-its-claim-is-answered",
        (Edit("worker/runner.py", "        if self._claims.waiting:  # its", "        if False:  # its"),),
        (f"{LEAVING}a_job_handed_out_while_draining_goes_back[sqlite]",),
        "W10: a job handed out at the last moment is given back",
    ),
    Mutant(
        "worker-drains-later-when-told-again",
        (Edit("worker/departure.py", "self.by = min(self.by, by)", "self.by = by"),),
        (f"{LEAVING}a_second_word_hastens_the_drain[sqlite]",),
        "W10: the sooner end counts",
    ),
    Mutant(
        "worker-keeps-what-it-claimed-ahead",
        (
            Edit(
                "worker/runner.py",
                '            self._give_back(self._pools.take_line(), "claimed ahead")\n',
                "            pass\n",
            ),
        ),
        (f"{LEASE}jobs_claimed_ahead_go_back_when_no_slot_frees[sqlite]",),
        "L5: what cannot begin here goes where it can",
    ),
    Mutant(
        "worker-sends-poison-results",
        (
            Edit(
                "worker/parcel.py",
                '        return failed(entry, problem, error_type="result_too_large")',
                "        return entry",
            ),
        ),
        (f"{LEASE}a_poison_result_fails_only_its_own_job[sqlite]",),
        "S9: too long a result fails its own job, by name",
    ),
    Mutant(
        "reset-connection-is-no-http-error",
        (Edit("httpclient.py", "except AttributeError as error:", "except KeyError as error:"),),
        ("tests/test_httpclient.py::test_a_worker_asks_again",),
        "A7: a worker outlives a server that dies between a connection and its first byte",
    ),
    Mutant(
        "cancel-leaves-connections-open",
        (Edit("httpclient.py", "            scope.cancel()\n", "            task.cancel()\n"),),
        ("tests/test_httpclient.py::test_a_cancel_leaves_no_connection_open[request-1]",),
        "a cancelled request closes every connection that has gone",
    ),
    Mutant(
        "password-in-the-list-of-processes",
        (Edit("cli/values.py", "and whole_url(value) != value", "and value is None"),),
        ("tests/cli/test_secrets.py::test_rel_t21_a_password_on_the_command_line_is_refused[url-server]",),
        "T21: no secret stands on a command line",
    ),
    Mutant(
        "workers-with-the-servers-secrets",
        (Edit("cli/up.py", "{**for_workers(ours), **said}", "{**ours, **said}"),),
        ("tests/cli/test_secrets.py::test_the_workers_of_up_do_not_know_the_servers_secrets",),
        "M7: workers know only what they need",
    ),
    Mutant(
        "secrets-left-in-the-servers-block",
        (Edit("config/environment.py", "ctypes.memset(at, 0, len(ctypes.string_at(at)))", "pass"),),
        ("tests/cli/test_secrets.py::test_rel_t8_a_task_finds_no_secret_of_server_and_worker",),
        "M7: no process above a task shows its secrets",
    ),
    Mutant(
        "worker-keeps-its-key-in-its-environment",
        (Edit("config/environment.py", "        del os.environ[name]\n", "        pass\n"),),
        ("tests/cli/test_secrets.py::test_a_process_forgets_its_secrets",),
        "M7: a task's environment has no key",
    ),
    Mutant(
        "runner-with-the-servers-settings",
        (Edit("worker/child.py", "database=Database(), security=security", "security=security"),),
        ("tests/cli/test_secrets.py::test_a_runner_is_told_nothing_that_only_a_server_needs",),
        "M7: the process of user code does not know the database",
    ),
)
