"""deploy/env.example names every setting that the code reads and no other, and works once its secrets are filled in."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from deploy.supervisor import settings as supervisor
from engine.settings import EngineSettings

ROOT = Path(__file__).resolve().parents[2]
LINES = (ROOT / "deploy" / "env.example").read_text().splitlines()
# What processes of one installation tell each other; nobody sets it.
INTERNAL = {"MARLAAS_RUN", "MARLAAS_X"}
# Of Ray's own, and of compose's.
FOREIGN = {
    *{"RAY_ADDRESS", "RAY_AUTH_MODE", "RAY_AUTH_TOKEN", "DATABASE_URL"},
    *{"POSTGRES_PASSWORD", "POSTGRES_OWNER_PASSWORD", "POSTGRES_APP_PASSWORD", "POSTGRES_OPERATOR_PASSWORD"},
}
GIVEN = re.compile(r"^(?:# )?([A-Z][A-Z0-9_]*)=(.*)$")


def example() -> dict[str, str]:
    """Variable → its value in the example, without the comment behind it."""
    found = [match for line in LINES if (match := GIVEN.match(line))]
    return {match[1]: re.split(r"\s+#", match[2])[0].strip().strip('"') for match in found}


def read_by_the_code() -> set[str]:
    """By the fields of both sides' settings, and by name anywhere in the code and its scripts."""
    sources = [
        path for tree in ("portal", "tenants", "engine", "deploy") for end in ("py", "sh") for path in (ROOT / tree).rglob(f"*.{end}")
    ]
    named = {name for path in sources for name in re.findall(r"MARLAAS_[A-Z_]*[A-Z]", path.read_text())}
    portal = re.search(r"class Env\(BaseSettings\):.*?@field_validator", (ROOT / "portal/env.py").read_text(), re.DOTALL)[0]
    fields = {*re.findall(r"^    ([a-z_]+): ", portal, re.MULTILINE), *EngineSettings.model_fields} - {"database_url"}
    return (
        {*named, *(f"MARLAAS_{name.upper()}" for name in fields)} - INTERNAL - {name for name in named if name.startswith("MARLAAS_TEST_")}
    )


def test_every_setting_that_the_code_reads_is_in_the_example() -> None:
    assert read_by_the_code() - example().keys() == set()


def test_the_example_names_nothing_that_nobody_reads() -> None:
    assert example().keys() - read_by_the_code() - FOREIGN == set()


def test_no_setting_is_named_twice() -> None:
    names = [match[1] for line in LINES if (match := GIVEN.match(line))]
    assert len(names) == len(set(names))


@pytest.mark.parametrize("name", sorted(name for name in EngineSettings.model_fields if f"MARLAAS_{name.upper()}" in example()))
def test_each_value_shown_for_the_engine_is_one_that_it_takes(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    value = example()[f"MARLAAS_{name.upper()}"]
    if not value or name.endswith("_cores"):
        return
    monkeypatch.setenv(f"MARLAAS_{name.upper()}", value)
    assert getattr(EngineSettings(), name) is not None


def test_the_defaults_that_are_shown_are_the_defaults(tmp_path: Path) -> None:
    shown = example()
    for name, field in EngineSettings.model_fields.items():
        value = shown.get(f"MARLAAS_{name.upper()}", "")
        if type(field.default) in (int, float) and value:
            assert float(value) == field.default, name
    assert int(shown["MARLAAS_WEB_PORT"]) == supervisor.load({}).web_port
