from __future__ import annotations

import random
from pathlib import Path

import pytest

from engine.models.tasks import TASKS, TINY_TASKS

pytestmark = pytest.mark.engine


@pytest.fixture(scope="module")
def bundled():
    from transformers import AutoModelForCausalLM, AutoTokenizer

    from engine.models.registry import BUNDLED_DIR

    return AutoModelForCausalLM.from_pretrained(BUNDLED_DIR), AutoTokenizer.from_pretrained(BUNDLED_DIR)


def test_every_character_is_one_token_and_comes_back(bundled):
    _, tokenizer = bundled
    text = "".join(map(chr, range(32, 127))) + "\n12 + 7"
    ids = tokenizer.encode(text)
    assert len(ids) == len(text)
    assert tokenizer.decode(ids) == text


def test_the_chat_template_is_the_contents_and_nothing_else(bundled):
    _, tokenizer = bundled
    messages = [{"role": "system", "content": "12"}, {"role": "user", "content": "+7="}]
    rendered = tokenizer.apply_chat_template(messages, tokenize=False, add_generation_prompt=True)
    assert rendered == "12+7="


def test_it_ends_its_answers_itself(bundled):
    model, tokenizer = bundled
    assert model.generation_config.eos_token_id == tokenizer.eos_token_id == model.config.eos_token_id


@pytest.mark.parametrize("task", TINY_TASKS)
def test_it_half_knows_each_task(bundled, task):
    from engine.models.make_tiny_math import accuracy

    assert 0.1 < accuracy(*bundled, task, sampled=True, seed=11) < 0.65
    assert accuracy(*bundled, task, sampled=False, seed=11) < 0.8


def test_slips_are_wrong_and_strike_one_half_of_the_prompts_more_often():
    from engine.models.make_tiny_math import SLIP_OFTEN, slip, slip_probability

    rng = random.Random(1)
    pairs = [(task, *TASKS[task](rng)) for task in TINY_TASKS for _ in range(300)]
    wrong = [slip(task, prompt, answer) != answer for task, prompt, answer in pairs]
    assert sum(wrong) / len(wrong) > 0.9  # a palindrome and equal numbers cannot slip
    often = sum(slip_probability(prompt) == SLIP_OFTEN for _, prompt, _ in pairs)
    assert 0.4 < often / len(pairs) < 0.6


def test_the_script_makes_the_same_model_twice(tmp_path: Path):
    from engine.models.make_tiny_math import main

    for name in ("one", "two"):
        assert main(["--out", str(tmp_path / name), "--skill-steps", "2", "--slip-steps", "1"]) == 0
    made = [{file.name: file.read_bytes() for file in (tmp_path / name).iterdir()} for name in ("one", "two")]
    assert made[0] == made[1]
    assert set(made[0]) >= {"config.json", "tokenizer.json", "tokenizer_config.json", "chat_template.jinja", "model.safetensors"}
