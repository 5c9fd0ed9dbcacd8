"""Each of forty bad files is refused with the right line and cause, by the same check that an upload and the command use."""

from __future__ import annotations

import io
import json
from io import StringIO
from pathlib import Path

import pytest
from django.core.management import call_command

from portal.datasets.validate import Options, validate
from tests.portal.datasets.bad_files import BadFile, all_of
from tests.portal.world import World


@pytest.fixture(scope="module")
def bad_files(tmp_path_factory: pytest.TempPathFactory) -> list[BadFile]:
    return all_of(tmp_path_factory.mktemp("made"))


def test_there_are_forty_of_different_kinds(bad_files: list[BadFile]) -> None:
    assert len(bad_files) >= 40
    assert len({bad.name for bad in bad_files}) == len(bad_files)
    assert len({bad.cause for bad in bad_files}) >= 22


def test_each_is_refused_at_its_line_for_its_cause(bad_files: list[BadFile]) -> None:
    wrong = {}
    for bad in bad_files:
        report = validate(io.BytesIO(bad.content), max_bytes=1 << 30, options=Options(filename=bad.name)).report
        first = report["errors"][0] if report["errors"] else {}
        found = (first.get("line"), first.get("cause"), first.get("column"))
        if found != (bad.line, bad.cause, bad.column) or not first.get("fix") or not first.get("message"):
            wrong[bad.name] = (found, first)
    assert wrong == {}


def test_the_command_says_the_same_and_exits_with_1(bad_files: list[BadFile], tmp_path: Path) -> None:
    for bad in bad_files[::7]:
        path = tmp_path / bad.name.replace(" ", "-")
        path.write_bytes(bad.content)
        out = StringIO()
        with pytest.raises(SystemExit) as ended:
            call_command("validate_dataset", str(path), "--json", stdout=out)
        report = json.loads(out.getvalue())
        assert ended.value.code == 1
        assert (report["errors"][0]["line"], report["error_total"] >= 1) == (bad.line, True), bad.name


def test_none_of_them_becomes_a_dataset(bad_files: list[BadFile], world: World) -> None:
    for bad in bad_files[::5]:
        upload = world.upload(file=io.BytesIO(bad.content), filename=bad.name)
        assert upload.report["error_total"], bad.name
        html = world.client(world.alice).get(f"/datasets/uploads/{upload.public_id}/").content.decode()
        assert "Nothing was stored" in html, bad.name
    assert not world.sums.datasets.exists()
