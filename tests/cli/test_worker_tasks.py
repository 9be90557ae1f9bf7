"""Which tasks a worker serves: those of its application and the work kinds of the user's own file, and nothing else."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.cli.conftest import Windlass
from tests.cli.running import READY, UP, Hands, running
from tests.cli.test_up import APP, ended, up

KIND = "[work_kinds.email]\nduration = '1ms'\n"


def test_a_job_of_no_task_here_stays_queued(tmp_path: Path) -> None:
    """A worker runs only what its application has: a job called email waits for the application that has it."""
    (tmp_path / "tasks.py").write_text(APP)
    with up(tmp_path, "tasks:app") as (process, hands):
        email = hands.submit("email")
        ended(hands, hands.submit("answer"), process)

        assert "queued" == hands.job(email)["state"]
        assert "Tasks served: answer, hold, post." in process.text.splitlines()


def test_the_kinds_of_the_users_file_are_served_beside_the_tasks(tmp_path: Path) -> None:
    """A kind that windlass.toml names succeeds without code; the line of tasks tells it from those with code."""
    (tmp_path / "tasks.py").write_text(APP)
    (tmp_path / "windlass.toml").write_text(KIND)
    with up(tmp_path, "tasks:app") as (process, hands):
        job = ended(hands, hands.submit("email"), process)

    assert "succeeded" == job["state"]
    assert "Tasks served: answer, email (work kind), hold, post." in process.text.splitlines()


def test_kinds_alone_are_served_on_the_users_database(tmp_path: Path) -> None:
    """`up` in a folder whose windlass.toml has kinds and no application does not bring the sample into it."""
    (tmp_path / "windlass.toml").write_text(KIND)
    with up(tmp_path) as (process, hands):
        job = ended(hands, hands.submit("email"), process)

    assert "succeeded" == job["state"]
    assert "Tasks served: email (work kind)." in process.text.splitlines()
    assert ["windlass.db"] == sorted(path.name for path in tmp_path.glob("*.db"))


@pytest.mark.parametrize("arguments", [["worker"], ["--mode=worker"], []])
def test_a_worker_with_nothing_to_run_refuses_to_start(windlass: Windlass, arguments: list[str]) -> None:
    """No module and no kinds: wrong usage, with what to write, however the mode was said."""
    result = windlass(*arguments, **({} if arguments else {"MODE": "worker"}))

    assert 2 == result.exit_code
    assert "Error: There is nothing to run. Name your application: windlass worker MODULE:APP" in result.stderr


def test_a_name_that_is_a_task_and_a_kind_is_an_error(tmp_path: Path) -> None:
    """Which of them was meant nobody can say: all stops, and the message says what to change."""
    (tmp_path / "tasks.py").write_text(APP)
    (tmp_path / "windlass.toml").write_text(KIND.replace("email", "answer"))
    with running(tmp_path, "up", "tasks:app", "--port", "0") as process:
        code = process.ended()

    assert 1 == code
    assert "'answer' is a task of the application and a work kind of the configuration" in process.text
    assert "take [work_kinds.answer] out of the configuration" in process.text


def test_an_image_names_its_application_in_the_settings(tmp_path: Path, url: str) -> None:
    """MODE=worker and WINDLASS_WORKER_APP: no command line is needed; the tasks are told in one line."""
    (tmp_path / "tasks.py").write_text(APP)
    image = {"MODE": "worker", "WINDLASS_WORKER_APP": "tasks:app", "WINDLASS_URL": url, "WINDLASS_WORKER_ID": "w"}
    with running(tmp_path, settings=image) as process:
        process.said("Windlass worker w is ready")
        text = process.text

    assert "Tasks served: answer, hold, post." in text.splitlines()


def test_a_worker_serves_the_kinds_alone(tmp_path: Path, url: str) -> None:
    """Without a module, a worker has the kinds of its file."""
    (tmp_path / "windlass.toml").write_text(KIND)
    hands = Hands(url)
    with running(tmp_path, "worker", settings={"WINDLASS_URL": url}) as process:
        process.said(r"Tasks served: email \(work kind\)\.")
        job = ended(hands, hands.submit("email"), process)
    hands.close()

    assert "succeeded" == job["state"]


@pytest.mark.exhaustive
def test_dev_tells_the_tasks_of_each_start(tmp_path: Path) -> None:
    """A task that was added to the code is in the line that follows."""
    (tmp_path / "tasks.py").write_text(APP)
    with running(tmp_path, "dev", "tasks:app", "--port", "0") as process:
        process.said(UP)
        process.said(READY)
        process.said(r"Tasks served: answer, hold, post\.")
        (tmp_path / "tasks.py").write_text(APP.replace("def answer", "def reply"))
        process.said(r"Tasks served: hold, post, reply\.")
