"""A random base model, random adapters for it, and transformers + peft as the reference for both."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any

from engine.device import DeviceProfile
from engine.ports import ADAPTER_FILES, Snapshot
from engine.spec import LORA_TARGETS


@dataclass(frozen=True)
class RealBase:
    path: Path
    layers: int
    vocabulary: int

    @classmethod
    def make(cls, path: Path) -> RealBase:
        from engine.models.make_tiny_math import build_model, build_tokenizer

        tokenizer = build_tokenizer()
        model = build_model(tokenizer, seed=3)
        model.save_pretrained(path)
        tokenizer.save_pretrained(path)
        return cls(path=path, layers=model.config.num_hidden_layers, vocabulary=model.config.vocab_size)

    def sampler_config(self, profile: DeviceProfile, folder: Path, **changes: Any) -> Any:
        from engine.rollout.vllm_worker import SamplerConfig

        return SamplerConfig(
            model=self.path,
            layers=self.layers,
            vocabulary=self.vocabulary,
            profile=profile,
            folder=folder,
            adapters=8,
            max_rank=16,
            max_context_tokens=256,
            **changes,
        )

    def model(self) -> Any:
        from transformers import AutoModelForCausalLM

        return AutoModelForCausalLM.from_pretrained(self.path, dtype="float32")

    def adapter(self, seed: int, *, rank: int = 16, std: float = 0.05, targets: tuple[str, ...] = LORA_TARGETS) -> Snapshot:
        """A random adapter in PEFT's files; ``std`` 0 leaves B = 0, as a fresh one has it."""
        import tempfile

        import torch
        from peft import LoraConfig, get_peft_model

        torch.manual_seed(seed)
        model = get_peft_model(self.model(), LoraConfig(r=rank, lora_alpha=2 * rank, target_modules=list(targets), task_type="CAUSAL_LM"))
        for name, weight in model.named_parameters():
            if "lora_B" in name and std:
                torch.nn.init.normal_(weight, std=std)
        with tempfile.TemporaryDirectory() as home:
            model.save_pretrained(home)
            return {name: (Path(home) / name).read_bytes() for name in ADAPTER_FILES}

    def logprobs(self, files: Snapshot | None, prompt_ids: list[int], completion_ids: list[int], *, temperature: float) -> list[float]:
        """Of each completion token, by transformers (and peft, with ``files``)."""
        import tempfile

        import torch
        from peft import PeftModel

        model = self.model()
        with tempfile.TemporaryDirectory() as home:
            if files is not None:
                for name, data in files.items():
                    (Path(home) / name).write_bytes(data)
                model = PeftModel.from_pretrained(model, home)
            with torch.no_grad():
                logits = model(torch.tensor([prompt_ids + completion_ids])).logits[0, len(prompt_ids) - 1 : -1]
        logprobs = (logits / temperature).log_softmax(-1)
        return logprobs[torch.arange(len(completion_ids)), torch.tensor(completion_ids)].tolist()
