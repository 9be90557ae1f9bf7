"""Guards of bodies: what stops one, what is said of it, and what it cannot do to others."""

from __future__ import annotations

from tests.mutants.mutant import Edit, Mutant

LADDER = "tests/worker/test_ladder.py::test_"
CELLS = "tests/worker/test_isolation.py::test_"
CAPTURE = "tests/worker/test_capture.py::test_"
STOPPED = f"{LADDER}a_body_is_stopped_and_the_rung_recorded"

MUTANTS = (
    Mutant(
        "late-end-is-reported",
        (Edit("worker/threads.py", "            if attempt.zombie:\n                return\n", ""),),
        (f"{LADDER}the_late_end_of_a_body_that_was_given_up_is_ignored",),
        "W9: a body that was given up is reported once",
    ),
    Mutant(
        "late-stop-is-taken-back",
        (
            Edit(
                "worker/threads.py",
                "        while True:  # until it comes here, and not in a destructor, which swallows it\n"
                "            _set_async_exc(threading.get_ident(), Stopped)\n",
                "        ctypes.pythonapi.PyThreadState_SetAsyncExc.argtypes = (ctypes.c_ulong, ctypes.c_void_p)\n"
                "        ctypes.pythonapi.PyThreadState_SetAsyncExc(threading.get_ident(), None)\n",
            ),
        ),
        ("tests/worker/test_stopping_locks.py::test_code_can_be_profiled_after_a_stop_that_came_too_late",),
        "W9: a stop that comes too late leaves nothing behind",
    ),
    Mutant(
        "stop-is-lost-in-a-destructor",
        (Edit("worker/threads.py", "            hand.lose_exception()\n", "            pass\n"),),
        ("tests/worker/test_stopping_locks.py::test_a_stop_that_comes_in_a_destructor_is_raised_again",),
        "W9: a body is stopped wherever it is",
    ),
    Mutant(
        "stop-is-an-error",
        (Edit("client/context.py", "class Stopped(BaseException):", "class Stopped(Exception):"),),
        (f"{STOPPED}[never_checks-exception-cancel]",),
        "W9: a body that catches every error is stopped all the same",
    ),
    Mutant(
        "all-rungs-at-once",
        (Edit("worker/ladder.py", "else now + graces.after(rung, ladder.why)", "else ladder.next_at + 2.0"),),
        (f"{LADDER}a_worker_that_stood_still_takes_one_rung_at_a_time",),
        "W9: a body has its time on each rung",
    ),
    Mutant(
        "lost-body-is-reported",
        (Edit("worker/endings.py", 'if ladder is not None and ladder.why == "lost":', "if False:"),),
        (f"{LADDER}a_lost_body_is_stopped_and_nothing_is_reported",),
        "B1: nothing is said of a lease that is another's",
    ),
    Mutant(
        "group-lives-on",
        (Edit("worker/cellprocess.py", "os.killpg(self.pid, number)", "os.kill(self.pid, number)"),),
        (f"{CELLS}a_killed_body_takes_what_it_started_with_it",),
        "W9: what a body started dies with it",
    ),
    Mutant(
        "cell-has-keys",
        (Edit("config/environment.py", "return bool(_OURS.match(name)) or ", "return "),),
        (f"{CELLS}rel_t8_no_key_goes_to_an_isolated_process",),
        "T8: an isolated process has no key",
    ),
    Mutant(
        "cell-is-never-replaced",
        (Edit("worker/isolated.py", " and not (self._max_jobs and cell.job_count >= self._max_jobs)", ""),),
        (f"{CELLS}a_process_is_replaced_after_its_share_of_jobs",),
        "F17: what bodies leave behind goes with their process",
    ),
    Mutant(
        "log-without-cap",
        (Edit("worker/trail.py", "        if self._kept_bytes >= rules.cap_bytes:\n", "        if False:\n"),),
        (f"{CAPTURE}nothing_is_kept_where_nothing_is_wanted",),
        "F6: no body fills the memory of its worker",
    ),
    Mutant(
        "controls-in-lines",
        (Edit("worker/trail.py", "text = _UNSAFE.sub(_escaped, text)", "pass"),),
        (f"{CAPTURE}rel_t18_controls_are_escaped_and_secrets_hidden",),
        "T18: no line steers a terminal",
    ),
    Mutant(
        "own-lines-in-a-jobs-log",
        (Edit("worker/capture.py", " or (_below(record.name, _OWN) and not _below(record.name, _TASKS))", ""),),
        (f"{CAPTURE}the_workers_own_lines_are_nobodys",),
        "Y4: a job's log has its own lines only",
    ),
)
