"""What an address of the API asks for in numbers or words is taken as it stands, or refused by its name."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest
import yaml
from django.core.management import call_command

from portal.numbers import MOST, finite, whole
from tests.portal.api.test_api import V1, error
from tests.portal.fake_engine import FakeEngine
from tests.portal.test_tenancy import things
from tests.portal.test_tenancy_table import bearer
from tests.portal.world import World

NO_NUMBERS = ("", " 1", "x", "-1", "+1", "1.0", "1e3", "0x1", "٣", "1\u00a0", "NaN", "9" * 30)


def numbered(tmp_path: Any) -> Iterator[tuple[str, dict[str, Any]]]:
    """(path, parameter) of each number or word in the query of a GET."""
    place = tmp_path / "schema.yaml"
    call_command("spectacular", "--file", str(place))
    for path, operations in yaml.safe_load(place.read_text())["paths"].items():
        for parameter in operations.get("get", {}).get("parameters", ()):
            shape = parameter["schema"]
            if parameter["in"] == "query" and (shape["type"] in ("integer", "number", "boolean") or "enum" in shape):
                yield path, parameter


def test_no_route_takes_nonsense_for_a_number_or_a_word(world: World, engine: FakeEngine, tmp_path: Any) -> None:
    api, names, seen, taken = bearer(world.sums, world.alice), things(world), 0, []
    for path, parameter in numbered(tmp_path):
        shape, name = parameter["schema"], parameter["name"]
        wrong = [*NO_NUMBERS] if shape["type"] == "integer" else ["x", "NaN", "inf"]
        wrong += [str(shape["minimum"] - 1)] if "minimum" in shape else []
        wrong += [str(shape["maximum"] + 1)] if "maximum" in shape else []
        address = filled(path, names)
        for value in wrong:
            seen += 1
            answer = api.get(address, {name: value})
            if answer.status_code != 400 or answer.json()["error"]["param"] != name:
                taken.append((path, name, value, answer.status_code))
    assert taken == []
    assert seen > 150


def filled(path: str, names: dict[str, dict[str, str]]) -> str:
    return path.format(**{**names.get(path.split("/")[3], {}), "version": "latest"})


def test_the_last_event_id_is_a_number_too(world: World) -> None:
    job = world.job()
    answer = world.api(world.bob).get(f"{V1}/jobs/{job.public_id}/events/stream/", headers={"Last-Event-ID": "x"})
    assert error(answer, 400)["param"] == "Last-Event-ID"


def test_a_list_is_as_long_as_was_asked(world: World) -> None:
    for _ in range(3):
        world.reward()
    api = world.api(world.bob)
    assert [len(api.get(f"{V1}/rewards/", {"limit": limit}).json()["results"]) for limit in (1, 2, 200)] == [1, 2, 3]


@pytest.mark.parametrize("text", [*NO_NUMBERS, None, str(MOST + 1)])
def test_what_is_no_whole_number_is_none(text: str | None) -> None:
    assert whole(text) is None


def test_a_whole_number_has_its_largest() -> None:
    assert [whole("7", most=7), whole("8", most=7), whole("007", most=7), whole("0")] == [7, None, None, 0]


@pytest.mark.parametrize(
    ("text", "number"),
    [
        *[("1.5", 1.5), ("-2", -2.0), ("1e3", 1000.0), (" .5 ", 0.5), ("+1.", 1.0)],
        *[(text, None) for text in ("nan", "inf", "1e999", "1_000", "٣", "1 0", ".", "0x1", "", None)],
    ],
)
def test_a_finite_number_is_one(text: str | None, number: float | None) -> None:
    assert finite(text) == number
