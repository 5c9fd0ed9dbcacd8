from __future__ import annotations

import os
import subprocess
import sys

import pytest

from deploy.supervisor.runner import KEEPER


def keep(*command: str, parent: int | None = None, cores: str = "-") -> subprocess.CompletedProcess[str]:
    argv = [sys.executable, "-I", "-S", str(KEEPER), str(parent or os.getpid()), "1", "0", cores, *command]
    return subprocess.run(argv, capture_output=True, text=True, timeout=30)


@pytest.mark.parametrize(("script", "status"), [("exit 0", 0), ("exit 7", 7), ("kill -KILL $$", 137)])
def test_it_ends_as_its_command_ended(script: str, status: int):
    assert keep("sh", "-c", script).returncode == status


def test_a_missing_command_is_named():
    done = keep("/no/such/program")
    assert (done.returncode, "cannot start /no/such/program" in done.stderr) == (127, True)


def test_it_starts_nothing_when_its_supervisor_is_gone_already():
    assert keep("echo", "hello", parent=1 if os.getppid() != 1 else 2).stdout == ""


def test_its_command_runs_on_the_cores_it_was_given():
    core = min(os.sched_getaffinity(0))
    done = keep(sys.executable, "-c", "import os; print(os.sched_getaffinity(0))", cores=str(core))
    assert done.stdout.strip() == f"{{{core}}}"


def test_its_command_leads_a_session_and_so_may_let_the_others_go_first():
    done = keep(sys.executable, "-c", "import os; print(os.getsid(0) == os.getpid())")
    assert done.stdout.strip() == "True"
