"""The layers of the house, held by walking every import (also those inside functions). Each failure names file, line and rule."""

from __future__ import annotations

import ast
import subprocess
import sys
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parent.parent
TREES = ("engine", "portal", "tenants", "deploy")
DEVICE_LIBRARIES = ("ray", "torch", "vllm", "peft", "transformers", "safetensors", "accelerate")
PORTAL_MAY_USE = (
    "engine.spec",
    "engine.grader_spec",
    "engine.events",
    "engine.blobs",
    "engine.sealed",
    "engine.almanac",
    "engine.rewards.outbound",
    "engine.rewards.addresses",
)
TORCH_HOMES = ("engine/train/", "engine/models/", "engine/bench/", "engine/rollout/vllm_", "engine/device.py")


@dataclass(frozen=True, kw_only=True, slots=True)
class Import:
    path: str  # relative to the root, with forward slashes
    line: int
    module: str  # absolute, dotted; `from a import b` gives both a and a.b


@dataclass(frozen=True, kw_only=True, slots=True)
class Rule:
    """``covers`` a file; then each of its imports must not be one that ``forbids``."""

    says: str
    covers: Callable[[str], bool]
    forbids: Callable[[str], bool]


def under(*prefixes: str) -> Callable[[str], bool]:
    return lambda path: path.startswith(prefixes)


def outside(*prefixes: str) -> Callable[[str], bool]:
    return lambda path: not path.startswith(prefixes)


def within(module: str, *packages: str) -> bool:
    return any(module == package or module.startswith(package + ".") for package in packages)


def any_of(*packages: str) -> Callable[[str], bool]:
    return lambda module: within(module, *packages)


def engine_door(module: str) -> bool:
    return within(module, "engine") and module != "engine" and not within(module, *PORTAL_MAY_USE)


def beyond_core(module: str) -> bool:
    if within(module, "engine"):
        return module != "engine" and not within(module, "engine.core")
    return module.partition(".")[0] not in sys.stdlib_module_names


RULES = [
    Rule(
        says="the engine knows nothing of the portal or its frameworks",
        covers=under("engine/"),
        forbids=any_of("portal", "tenants", "deploy", "django", "celery", "channels", "rest_framework", "allauth"),
    ),
    Rule(
        says="the portal and its accounts install light: no device library",
        covers=under("portal/", "tenants/", "deploy/"),
        forbids=any_of(*DEVICE_LIBRARIES),
    ),
    Rule(says=f"of the engine, the portal uses only {', '.join(PORTAL_MAY_USE)}", covers=under("portal/"), forbids=engine_door),
    Rule(says="tenants stands below everything: nothing of engine or portal", covers=under("tenants/"), forbids=any_of("engine", "portal")),
    Rule(says="the core is the standard library and itself", covers=under("engine/core/"), forbids=beyond_core),
    Rule(says="only engine/rollout/vllm_*.py imports vllm", covers=outside("engine/rollout/vllm_"), forbids=any_of("vllm")),
    Rule(says="only engine/runtime imports ray", covers=outside("engine/runtime/"), forbids=any_of("ray")),
    Rule(says=f"only {', '.join(TORCH_HOMES)}* import torch", covers=outside(*TORCH_HOMES), forbids=any_of("torch")),
    Rule(
        says="only portal/billing/stripe_client.py imports stripe",
        covers=outside("portal/billing/stripe_client.py"),
        forbids=any_of("stripe"),
    ),
    Rule(
        says="engine.runtime stands on top of the engine: only it, the entry points and the bench import it",
        covers=lambda path: (
            path.startswith("engine/") and not path.startswith(("engine/runtime/", "engine/bench/", "engine/__main__", "engine/demo"))
        ),
        forbids=any_of("engine.runtime"),
    ),
    Rule(
        says="parts do not know their owner",
        covers=under("engine/rollout/", "engine/train/", "engine/rewards/", "engine/models/", "engine/store", "engine/journal"),
        forbids=any_of("engine.manager", "engine.service", "engine.core", "engine.sim", "engine.bench"),
    ),
    Rule(
        says="only the portal's gateway speaks HTTP to the engine",
        covers=under("portal/jobs/", "portal/datasets/", "portal/rewards/"),
        forbids=any_of("httpx", "requests", "urllib.request", "aiohttp"),
    ),
]


def imports_of(source: str, path: str) -> Iterator[Import]:
    """Every import in ``source``, relative ones resolved against ``path``."""
    for node in ast.walk(ast.parse(source, path)):
        if isinstance(node, ast.Import):
            yield from (Import(path=path, line=node.lineno, module=alias.name) for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            base = _base(node, path)
            yield Import(path=path, line=node.lineno, module=base)
            yield from (Import(path=path, line=node.lineno, module=f"{base}.{alias.name}") for alias in node.names)


def _base(node: ast.ImportFrom, path: str) -> str:
    if not node.level:
        return node.module or ""
    package = path.split("/")[: -node.level]
    return ".".join([*package, *([node.module] if node.module else [])])


def breaches(rule: Rule, imports: list[Import]) -> list[str]:
    found = {(i.path, i.line): i.module for i in reversed(imports) if rule.covers(i.path) and rule.forbids(i.module)}
    return [f"{path}:{line}: imports {module}, but {rule.says}" for (path, line), module in sorted(found.items())]


def python_files(*trees: str) -> Iterator[Path]:
    for tree in trees:
        yield from sorted((ROOT / tree).rglob("*.py"))


@pytest.fixture(scope="module")
def imports() -> list[Import]:
    files = [*python_files(*TREES), ROOT / "manage.py"]
    return [i for file in files if file.exists() for i in imports_of(file.read_text(), file.relative_to(ROOT).as_posix())]


@pytest.mark.parametrize("rule", RULES, ids=lambda rule: rule.says)
def test_no_import_breaks_the_layers(rule, imports):
    assert not (found := breaches(rule, imports)), "\n" + "\n".join(found)


@pytest.mark.parametrize(
    ("path", "source", "rule"),
    [
        ("engine/store.py", "from django.db import models", 0),
        ("portal/jobs/views.py", "def view():\n    import torch", 1),
        ("portal/jobs/views.py", "from engine import manager", 2),
        ("tenants/models.py", "from portal.jobs.models import Job", 3),
        ("engine/core/kv.py", "from ..store import Store", 4),
        ("engine/core/kv.py", "import pydantic", 4),
        ("engine/rollout/episodes.py", "import vllm.lora", 5),
        ("engine/manager.py", "import ray", 6),
        ("engine/rewards/math.py", "from torch import nn", 7),
        ("portal/billing/outbox.py", "import stripe", 8),
        ("engine/manager.py", "from engine.runtime.launcher import launch", 9),
        ("engine/train/worker.py", "from engine.manager import Manager", 10),
        ("portal/jobs/tasks.py", "import httpx", 11),
    ],
)
def test_each_rule_would_notice(path, source, rule):
    (message,) = breaches(RULES[rule], list(imports_of(source, path)))
    assert message.startswith(f"{path}:") and RULES[rule].says in message


@pytest.mark.parametrize(
    ("path", "source"),
    [
        ("portal/jobs/forms.py", "from engine.spec import JobSpec"),
        ("portal/jobs/forms.py", "from engine import spec"),
        ("engine/core/scheduler.py", "from engine.core import messages as m"),
        ("engine/rollout/vllm_worker.py", "import vllm, torch"),
        ("engine/runtime/launcher.py", "import ray"),
        ("engine/spec.py", "from raytracing import rays"),
    ],
)
def test_the_rules_leave_the_right_imports_alone(path, source):
    assert [message for rule in RULES for message in breaches(rule, list(imports_of(source, path)))] == []


def test_the_contracts_load_without_any_device_library_or_framework():
    heavy = (*DEVICE_LIBRARIES, "django", "celery", "channels")
    code = f"import sys, engine.spec, engine.events, engine.blobs; print(*[m for m in {heavy} if m in sys.modules])"
    done = subprocess.run([sys.executable, "-c", code], cwd=ROOT, capture_output=True, text=True, timeout=60, check=True)
    assert done.stdout.split() == []


def _starts_ray(source: str) -> list[int]:
    calls = [node for node in ast.walk(ast.parse(source)) if isinstance(node, ast.Call)]
    return [c.lineno for c in calls if isinstance(c.func, ast.Attribute) and ast.unparse(c.func) == "ray.init"]


def test_no_unit_test_starts_ray():
    marked = ("mark.engine", "mark.stack", "mark.browser")
    sources = [(file, file.read_text()) for file in python_files("tests")]
    found = [
        f"{f.relative_to(ROOT)}:{line}: calls ray.init" for f, s in sources if not any(m in s for m in marked) for line in _starts_ray(s)
    ]
    assert not found, "\n".join(found)


def test_a_call_of_ray_init_would_be_noticed():
    assert _starts_ray("import ray\n\ndef test_x():\n    ray.init(num_cpus=1)") == [4]
