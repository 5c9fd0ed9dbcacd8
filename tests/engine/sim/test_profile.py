"""The file that carries a machine's speeds from the bench to the simulator."""

from __future__ import annotations

import json

import pytest

from engine.sim.profile import DecodePoint, MachineProfile, ProfileError, as_json, read, write


def profile(**changes) -> MachineProfile:
    fields = {
        "machine": "two cores",
        "model": "tiny-math",
        "measured_at": "2026-11-30T11:00:00Z",
        "decode": [{"sequences": 1, "adapters": 1, "tokens_per_second": 100.0}],
        "max_sequences": 512,
        "prefill_tokens_per_second": 1000.0,
        "seconds_per_request": 0.001,
        "seconds_per_request_batch": 0.01,
        "adapter_load_seconds": 0.02,
        "train_fixed_seconds": 0.05,
        "train_seconds_per_token": 1e-5,
        "commit_seconds": 0.01,
    }
    return MachineProfile(**{**fields, **changes})


def test_a_profile_survives_its_file(tmp_path):
    path = tmp_path / "var" / "profile.json"
    write(path, profile(sampling_slowdown=1.2))
    assert read(path) == profile(sampling_slowdown=1.2)
    assert json.loads(path.read_text())["schema"] == 1


@pytest.mark.parametrize("change", [{"schema": 2}, {"train_seconds": 1.0}, {"commit_seconds": -1}, {"decode": []}])
def test_what_is_no_profile_is_refused_by_field(tmp_path, change):
    path = tmp_path / "profile.json"
    path.write_text(json.dumps({**as_json(profile()), **change}))
    with pytest.raises(ProfileError, match=next(iter(change))):
        read(path)


def test_a_point_measured_twice_is_refused():
    point = DecodePoint(sequences=8, adapters=1, tokens_per_second=10.0)
    with pytest.raises(ValueError, match="measured twice"):
        profile(decode=[point, point])
