"""What `make` says to somebody whose machine lacks something. Each runs the real script over a scratch copy of the tree's top."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]


@pytest.fixture
def checkout(tmp_path: Path) -> Path:
    """Makefile, installer and locks, without a virtual environment."""
    shutil.copytree(ROOT / "deploy", tmp_path / "deploy", ignore=shutil.ignore_patterns("__pycache__"))
    shutil.copy(ROOT / "Makefile", tmp_path)
    return tmp_path


def commands(folder: Path, **scripts: str) -> Path:
    """A folder of commands: the shell's own tools, and ``scripts`` (name with _ for . → body)."""
    folder.mkdir()
    for tool in (
        "bash",
        "sh",
        "cat",
        "chmod",
        "cut",
        "dirname",
        "date",
        "grep",
        "id",
        "mkdir",
        "sha256sum",
        "tail",
        "tee",
        "touch",
        "uname",
        "awk",
        "env",
    ):
        (folder / tool).symlink_to(shutil.which(tool))
    for name, body in scripts.items():
        script = folder / name.replace("__", ".").replace("_", "-")
        script.write_text(f"#!{shutil.which('bash')}\n{body}\n")
        script.chmod(0o755)
    return folder


def install(checkout: Path, path: Path, *words: str, **more: str) -> subprocess.CompletedProcess[str]:
    environment = {"PATH": str(path), "HOME": str(checkout), "PYTHON": "", **more}
    return subprocess.run(["bash", "deploy/install.sh", *words], cwd=checkout, env=environment, capture_output=True, text=True, timeout=60)


def a_python(version: str, *, venv: bool) -> str:
    """A stand-in that answers the installer's questions and nothing else."""
    return f"""case "$*" in
  *ensurepip*) exit {0 if venv else 1} ;;
  *version_info*print*|*print*version_info*) echo {version} ;;
  *version_info*) exit 0 ;;
  *) exit 1 ;;
esac"""


def test_without_a_python_it_names_the_line_that_brings_one(checkout: Path, tmp_path: Path):
    path = commands(tmp_path / "bin", python3="exit 1", apt_get="exit 0")
    done = install(checkout, path, "run")
    assert done.returncode == 1
    assert "needs Python 3.11 or 3.12" in done.stderr and "apt-get install -y python3 python3-venv" in done.stderr


def test_a_python_without_venv_is_answered_with_its_package(checkout: Path, tmp_path: Path):
    path = commands(tmp_path / "bin", python3__11=a_python("3.11", venv=False), apt_get="exit 0")
    done = install(checkout, path, "run")
    assert done.returncode == 1
    assert "without its venv module" in done.stderr and "apt-get install -y python3.11-venv" in done.stderr


@pytest.mark.parametrize(("user", "line"), [(0, "  apt-get install"), (1000, "  sudo apt-get install")])
def test_an_ordinary_user_is_told_to_use_sudo(checkout: Path, tmp_path: Path, user: int, line: str):
    path = commands(tmp_path / "bin", apt_get="exit 0", id=f"echo {user}")
    assert line in install(checkout, path, "run").stderr


def test_an_ascend_machine_is_pointed_to_its_container(checkout: Path, tmp_path: Path):
    path = commands(tmp_path / "bin", npu_smi="exit 0")
    done = install(checkout, path, "run")
    assert (done.returncode, "docker build -f deploy/ascend/Dockerfile" in done.stderr) == (1, True)


def test_an_unknown_device_is_refused(checkout: Path, tmp_path: Path):
    done = install(checkout, commands(tmp_path / "bin"), "run", DEVICE="tpu")
    assert (done.returncode, "DEVICE must be cpu or cuda, not tpu" in done.stderr) == (1, True)


def test_on_a_cuda_machine_the_tests_get_an_environment_of_their_own(checkout: Path, tmp_path: Path):
    path = commands(tmp_path / "bin", nvidia_smi="exit 0")
    assert install(checkout, path, "which-test").stdout.strip() == ".venv-test/bin/python"


def test_when_nothing_changed_it_asks_nobody_anything(checkout: Path, tmp_path: Path):
    path = commands(tmp_path / "bin")
    script = "(cat deploy/locks/engine-cpu.txt deploy/install.sh; pwd) | sha256sum | cut -c1-16"
    digest = subprocess.run(["bash", "-c", script], cwd=checkout, capture_output=True, text=True, check=True).stdout.strip()
    stamp = checkout / ".venv" / ".stamps" / f"engine-cpu-{digest}"
    stamp.parent.mkdir(parents=True)
    stamp.touch()
    done = install(checkout, path, "run")
    assert (done.returncode, done.stdout, done.stderr) == (0, "", "")


def test_it_leaves_the_command_marl_in_the_environment(checkout: Path, tmp_path: Path):
    python = checkout / ".venv" / "bin" / "python"
    python.parent.mkdir(parents=True)
    python.write_text(f"""#!{shutil.which("bash")}
case "$*" in
  *sysconfig*) echo {checkout} ;;
  *pip_progress*) cat >/dev/null ;;
  *portal.cli*) echo "asked: $*" ;;
esac""")
    python.chmod(0o755)
    done = install(checkout, commands(tmp_path / "bin"), "run", DEVICE="cpu")
    assert done.returncode == 0, done.stderr
    (tmp_path / "link").symlink_to(python.parent / "marl")
    for command in (python.parent / "marl", tmp_path / "link"):
        said = subprocess.run([command, "jobs", "list"], cwd="/", capture_output=True, text=True, timeout=60, check=True).stdout
        assert said == "asked: -P -m portal.cli jobs list\n"


def test_make_alone_lists_what_there_is(checkout: Path):
    done = subprocess.run(["make"], cwd=checkout, capture_output=True, text=True, timeout=60)
    assert done.returncode == 0
    assert all(f"make {target}" in done.stdout for target in ("setup", "demo", "up", "down", "test", "bench", "soak"))


def test_down_before_anything_was_installed_is_no_error(checkout: Path):
    done = subprocess.run(["make", "down"], cwd=checkout, env={"PATH": os.environ["PATH"]}, capture_output=True, text=True, timeout=60)
    assert (done.returncode, "nothing runs" in done.stdout) == (0, True)


def test_pips_output_becomes_one_line_per_so_many_packages_without_a_terminal():
    lines = "".join(f"Collecting package-{number}==1.0\n" for number in range(81))
    command = [sys.executable, str(ROOT / "deploy" / "pip_progress.py"), "Installing x", "90"]
    said = subprocess.run(command, input=lines, capture_output=True, text=True, timeout=60, check=True).stdout.splitlines()
    assert said[:3] == [f"Installing x: {seen} of about 90, package-{seen - 1}" for seen in (1, 41, 81)]
    assert said[3].startswith("Installing x: ")
