"""What is installed is what was locked: pinned, hashed, of one mind, and the same in tests and images. Needs no network.

Whether a locked version is known to be vulnerable a public database knows (SECURITY.md).
"""

from __future__ import annotations

import re
from importlib import metadata
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
LOCKS = {path.stem: path.read_text() for path in sorted((ROOT / "deploy/locks").glob("*.txt"))}
DOCKERFILES = {path.parent.name: path.read_text() for path in sorted((ROOT / "deploy").glob("*/Dockerfile"))}
WITHOUT_A_LOCK = {"torch"}  # comes first and from an index of its own, by exact version


def entries(lock: str) -> list[str]:
    """Each requirement with its hashes, one a line."""
    return [line for line in re.sub(r"\\\n\s*", "", lock).splitlines() if line and not line.startswith("#")]


def pins(lock: str) -> dict[str, str]:
    return {name: version for name, version in re.findall(r"^([A-Za-z0-9._-]+)(?:\[[a-z,]+\])?==([^ ;\\]+)", lock, re.MULTILINE)}


@pytest.mark.parametrize("name", LOCKS)
def test_each_package_has_one_version_and_its_hashes(name: str) -> None:
    loose = [entry.split()[0] for entry in entries(LOCKS[name]) if "==" not in entry.split("--hash")[0] or "--hash=sha256:" not in entry]
    assert (loose, bool(entries(LOCKS[name]))) == ([], True)


@pytest.mark.parametrize("name", ["portal", "engine-cpu"])
def test_what_runs_is_what_was_tested(name: str) -> None:
    tested = pins(LOCKS["dev"])
    assert {package: version for package, version in pins(LOCKS[name]).items() if tested.get(package) != version} == {}


def test_these_tests_run_on_what_was_locked() -> None:
    installed = {name.lower().replace("_", "-"): found.version for found in metadata.distributions() if (name := found.name)}
    differing = {name: installed[name] for name, version in pins(LOCKS["dev"]).items() if installed.get(name, version) != version}
    assert differing == {}, "make test installs them"


@pytest.mark.parametrize("name", sorted(DOCKERFILES.keys() - {"ascend"}))  # whose base image brings its own, see constraints.txt
def test_an_image_installs_nothing_but_what_was_locked(name: str) -> None:
    installs = re.findall(r"pip install ([^&\n]*?)(?:\s*\\)?$", DOCKERFILES[name], re.MULTILINE)
    assert installs
    for words in installs:
        exact = re.match(r"--no-cache-dir ([a-z]+)==\d[\d.]+(?: \$\{TORCH_INDEX.*\})?$", words.strip())
        assert "--require-hashes -r deploy/locks/" in words or (exact and exact[1] in WITHOUT_A_LOCK), words
