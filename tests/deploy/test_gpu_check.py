"""deploy/gpu_check.sh, tried on the processor."""

from __future__ import annotations

import ast
import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
SECONDS = 480


def gpu_check(*words: object, **environment: str) -> subprocess.CompletedProcess[str]:
    command = [str(ROOT / "deploy" / "gpu_check.sh"), *map(str, words)]
    own = {"PYTHON": sys.executable, "GPU_CHECK_SECONDS": "0.5", **environment}
    return subprocess.run(command, capture_output=True, text=True, timeout=SECONDS, check=False, env={**os.environ, **own})


@pytest.mark.engine
@pytest.mark.timeout(SECONDS)
def test_the_trainer_is_found_right_on_the_processor_and_the_report_says_how_fast_it_is(tmp_path: Path) -> None:
    report = tmp_path / "report.md"
    done = gpu_check("--trainer-only", "--device", "cpu", "--report", report)
    assert done.returncode == 0, done.stdout + done.stderr
    text = report.read_text()
    figures = json.loads(text.split("```json\n")[1].split("\n```")[0])
    assert [check["name"] for check in figures["checks"]] == [
        "losses",
        "LoRA parity with PEFT",
        "FSDP2 at one rank",
        "the same step twice",
        "speed",
    ]
    assert figures["ok"] and figures["checks"][-1]["tokens per second"] > 0
    assert (figures["machine"]["device"], "**All is well**" in text) == ("cpu", True)


@pytest.mark.engine
@pytest.mark.timeout(SECONDS)
def test_the_trainers_check_needs_torch_transformers_and_peft_alone() -> None:
    listing = "import sys, engine.bench.trainer as t; print(*(m.__file__ for n, m in sys.modules.items() if n.startswith('engine.')))"
    done = subprocess.run([sys.executable, "-c", listing], capture_output=True, text=True, timeout=SECONDS, check=True, cwd=ROOT)
    foreign = {root for path in done.stdout.split() for root in _imports(Path(path))} - set(sys.stdlib_module_names) - {"engine"}
    assert foreign == {"torch", "transformers", "peft"}


def _imports(path: Path) -> set[str]:
    """The packages that importing this file imports: not those for type checkers, nor those inside functions."""
    found = set()
    for node in ast.parse(path.read_text()).body:
        if isinstance(node, ast.Import):
            found |= {name.name.partition(".")[0] for name in node.names}
        elif isinstance(node, ast.ImportFrom):
            found.add((node.module or "engine").partition(".")[0])
    return found


def test_a_device_that_is_not_there_fails_with_the_reason_in_the_report(tmp_path: Path) -> None:
    broken = tmp_path / "python"
    broken.write_text('#!/bin/sh\necho "no such device: $*"\nexit 3\n')
    broken.chmod(0o755)
    done = gpu_check("--trainer-only", "--device", "npu", "--report", tmp_path / "report.md", PYTHON=str(broken))
    text = (tmp_path / "report.md").read_text()
    assert (done.returncode, "FAILED with status 3" in text, "**Something failed**" in text) == (1, True, True)
    assert "no such device: -m engine.bench.trainer --device npu" in text


def test_an_unknown_device_or_word_is_refused(tmp_path: Path) -> None:
    assert gpu_check("--device", "tpu").returncode == gpu_check("--what").returncode == 2
