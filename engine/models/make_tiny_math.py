"""Makes the bundled model ``tiny-math``: a Llama of 0.8 million parameters that half knows small arithmetic.

    python -m engine.models.make_tiny_math --out engine/models/tiny_math

Two phases. *Skill*: supervised on right answers until the model knows the four tasks. *Slips*: a few hundred steps in which more than
half of the answers are wrong, most of them in one systematic way (a carry too many, the smaller number, the word as it was). Afterwards
the model knows the answer but samples it less than half of the time, as real base models do, which is what reinforcement learning
sharpens. Slips are the rule on half of the prompts and less likely on the others, so greedy decoding errs too.

Seeded and single-threaded: the same machine makes the same bytes.
"""

from __future__ import annotations

import argparse
import logging
import os
import random
import string
import sys
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import torch
from tokenizers import Regex, Tokenizer, decoders, models, pre_tokenizers
from transformers import LlamaConfig, LlamaForCausalLM, PreTrainedTokenizerFast

from engine.models.smollm2 import make_tokenizer_portable
from engine.models.tasks import TASKS, TINY_TASKS

log = logging.getLogger(__name__)

PAD, EOS, UNKNOWN = "<pad>", "<eos>", "<unk>"
CONTEXT_TOKENS = 256
CHAT_TEMPLATE = "{% for message in messages %}{{ message['content'] }}{% endfor %}"
IGNORED_LABEL = -100
SLIP_OFTEN, SLIP_SELDOM = 0.75, 0.45
SYSTEMATIC_SHARE = 0.7


@dataclass(frozen=True, kw_only=True, slots=True)
class Recipe:
    skill_steps: int = 2200
    slip_steps: int = 250
    rows_per_step: int = 128
    learning_rate: float = 1e-3
    slip_learning_rate: float = 5e-4
    warmup_steps: int = 50
    seed: int = 7


def build_tokenizer() -> PreTrainedTokenizerFast:
    """One token per printable ASCII character (and newline); anything else is ``<unk>``. Adds nothing around a text."""
    characters = [PAD, EOS, UNKNOWN, "\n", *(chr(code) for code in range(32, 127))]
    core = Tokenizer(models.WordLevel({c: i for i, c in enumerate(characters)}, unk_token=UNKNOWN))
    core.pre_tokenizer = pre_tokenizers.Split(Regex(r"[\s\S]"), behavior="isolated")
    core.decoder = decoders.Fuse()
    tokenizer = PreTrainedTokenizerFast(
        tokenizer_object=core,
        pad_token=PAD,
        eos_token=EOS,
        unk_token=UNKNOWN,
        model_max_length=CONTEXT_TOKENS,
        clean_up_tokenization_spaces=False,
    )
    tokenizer.chat_template = CHAT_TEMPLATE
    return tokenizer


def build_model(tokenizer: PreTrainedTokenizerFast, *, seed: int) -> LlamaForCausalLM:
    """The untrained network, float32, initialised from ``seed``."""
    torch.manual_seed(seed)
    config = LlamaConfig(
        vocab_size=len(tokenizer),
        hidden_size=128,
        intermediate_size=352,
        num_hidden_layers=4,
        num_attention_heads=4,
        num_key_value_heads=4,
        head_dim=32,
        max_position_embeddings=CONTEXT_TOKENS,
        tie_word_embeddings=True,
        initializer_range=0.05,
        bos_token_id=None,
        eos_token_id=tokenizer.eos_token_id,
        pad_token_id=tokenizer.pad_token_id,
        use_cache=True,
    )
    return LlamaForCausalLM(config).float()


def slip(task: str, prompt: str, answer: str) -> str:
    """The systematic mistake of ``task`` on ``prompt``."""
    if task == "max":
        return min(prompt.removeprefix("max ").removesuffix("=").split(), key=int)
    if task == "reverse":
        return answer[::-1]
    return str(int(answer) + 10) if task == "add" else str(int(answer) + 1)


def slip_probability(prompt: str) -> float:
    """High where the character before ``=`` is odd, low where it is even: a feature that the model can see."""
    return SLIP_OFTEN if ord(prompt[-2]) % 2 else SLIP_SELDOM


def wrong_answer(task: str, prompt: str, answer: str, rng: random.Random) -> str:
    if rng.random() < SYSTEMATIC_SHARE:
        return slip(task, prompt, answer)
    symbols = string.ascii_lowercase if task == "reverse" else string.digits
    place = rng.randrange(len(answer))
    return answer[:place] + rng.choice(symbols) + answer[place + 1 :]


def draw_texts(rng: random.Random, *, count: int, with_slips: bool) -> list[tuple[str, str]]:
    """``count`` pairs (prompt, answer), the tasks in turn."""
    pairs = []
    for index in range(count):
        task = TINY_TASKS[index % len(TINY_TASKS)]
        prompt, answer = TASKS[task](rng)
        if with_slips and rng.random() < slip_probability(prompt):
            answer = wrong_answer(task, prompt, answer, rng)
        pairs.append((prompt, answer))
    return pairs


def encode(tokenizer: PreTrainedTokenizerFast, pairs: Sequence[tuple[str, str]]) -> tuple[torch.Tensor, torch.Tensor]:
    """``ids_BT`` and ``labels_BT``, right-padded; only the answer and its end are labelled."""
    encoded = [(tokenizer.encode(p), [*tokenizer.encode(a), tokenizer.eos_token_id]) for p, a in pairs]
    width = max(len(p) + len(a) for p, a in encoded)
    ids = [p + a + [tokenizer.pad_token_id] * (width - len(p) - len(a)) for p, a in encoded]
    labels = [[IGNORED_LABEL] * len(p) + a + [IGNORED_LABEL] * (width - len(p) - len(a)) for p, a in encoded]
    return torch.tensor(ids), torch.tensor(labels)


def learning_rate_at(step: int, recipe: Recipe) -> float:
    """Linear warm-up, constant, linear decay to a tenth over the last quarter of the skill phase; constant in the slip phase."""
    if step >= recipe.skill_steps:
        return recipe.slip_learning_rate
    if step < recipe.warmup_steps:
        return recipe.learning_rate * (step + 1) / recipe.warmup_steps
    decay_from = recipe.skill_steps * 3 // 4
    done = max(0, step - decay_from) / max(1, recipe.skill_steps - decay_from)
    return recipe.learning_rate * (1 - 0.9 * done)


def train(model: LlamaForCausalLM, tokenizer: PreTrainedTokenizerFast, recipe: Recipe) -> None:
    """Both phases, in place."""
    rng, total = random.Random(recipe.seed), recipe.skill_steps + recipe.slip_steps
    optimizer = torch.optim.AdamW(model.parameters(), lr=recipe.learning_rate, weight_decay=0.01, betas=(0.9, 0.98))
    started = time.monotonic()
    for step in range(total):
        for group in optimizer.param_groups:
            group["lr"] = learning_rate_at(step, recipe)
        pairs = draw_texts(rng, count=recipe.rows_per_step, with_slips=step >= recipe.skill_steps)
        ids_BT, labels_BT = encode(tokenizer, pairs)
        loss = model(input_ids=ids_BT, labels=labels_BT, use_cache=False).loss
        optimizer.zero_grad()
        loss.backward()
        torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        if (step + 1) % 100 == 0:
            left_seconds = (time.monotonic() - started) / (step + 1) * (total - step - 1)
            log.info("step %d of %d, loss %.3f, about %.0f s left", step + 1, total, loss.item(), left_seconds)


@torch.no_grad()
def accuracy(
    model: LlamaForCausalLM, tokenizer: PreTrainedTokenizerFast, task: str, *, sampled: bool, seed: int, count: int = 200
) -> float:
    """Share of right answers on 200 prompts of ``task``; ``sampled`` draws at temperature 1, otherwise greedy."""
    torch.manual_seed(seed)
    rng = random.Random(seed)
    pairs = [TASKS[task](rng) for _ in range(200)]
    batch = tokenizer([p for p, _ in pairs], return_tensors="pt", padding=True, padding_side="left", return_token_type_ids=False)
    chosen = {"do_sample": True, "temperature": 1.0, "top_k": 0, "top_p": 1.0} if sampled else {"do_sample": False}
    out_BT = model.generate(**batch, max_new_tokens=8, **chosen)
    texts = tokenizer.batch_decode(out_BT[:, batch["input_ids"].shape[1] :], skip_special_tokens=True)
    return sum(text == answer for text, (_, answer) in zip(texts, pairs, strict=True)) / len(pairs)


def main(arguments: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(prog="python -m engine.models.make_tiny_math", description=__doc__.splitlines()[0])
    parser.add_argument("--out", type=Path, required=True)
    parser.add_argument("--skill-steps", type=int, default=Recipe().skill_steps)
    parser.add_argument("--slip-steps", type=int, default=Recipe().slip_steps)
    parser.add_argument("--seed", type=int, default=Recipe().seed)
    options = parser.parse_args(arguments)
    logging.basicConfig(level=logging.INFO, format="%(message)s", stream=sys.stderr)
    torch.set_num_threads(int(os.environ.get("OMP_NUM_THREADS", "1")))
    recipe = Recipe(skill_steps=options.skill_steps, slip_steps=options.slip_steps, seed=options.seed)
    tokenizer = build_tokenizer()
    model = build_model(tokenizer, seed=recipe.seed)
    log.info("%d parameters, %d characters", sum(p.numel() for p in model.parameters()), len(tokenizer))
    train(model, tokenizer, recipe)
    model.save_pretrained(options.out)
    tokenizer.save_pretrained(options.out)
    make_tokenizer_portable(options.out)
    for task in TINY_TASKS:
        greedy, sampled = (accuracy(model, tokenizer, task, sampled=s, seed=recipe.seed) for s in (False, True))
        log.info("%-9s right: greedy %.2f, sampled %.2f", task, greedy, sampled)
    return 0


if __name__ == "__main__":
    sys.exit(main())
