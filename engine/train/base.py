"""The frozen base model as one FSDP rank holds it, and what the trainer asks of it: log-probabilities of given tokens.

The base's parameters are sharded over the ranks before any adapter exists; adapters are added afterwards, replicated, and are no concern
of FSDP. They can therefore come and go without sharding anything again.
"""

from __future__ import annotations

from pathlib import Path

import torch
from torch import Tensor, nn
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import fully_shard
from torch.utils.checkpoint import checkpoint
from transformers import AutoModelForCausalLM

# Logits of this many tokens are alive at once: with a vocabulary of 150,000 they take 1.2 GB in float32.
LOGIT_CHUNK_TOKENS = 2048
PROBE_TOLERANCE = 1e-3


class UnsupportedModel(RuntimeError):
    """The architecture does more to its logits than the trainer reproduces."""


class TokenScorer(nn.Module):
    """A causal language model, reduced to the log-probabilities and entropies at chosen tokens."""

    def __init__(self, model: nn.Module):
        super().__init__()
        self.model = model

    def forward(self, ids_BT: Tensor, mask_BT: Tensor, temperature: float) -> tuple[Tensor, Tensor]:
        """``(logprobs_BT, entropy_BT)`` in float32, at the tokens where ``mask_BT`` is true, 0 elsewhere.

        Rows are padded on the right: under causal attention no real token sees the padding, so no attention mask is needed.
        Logits are divided by ``temperature``, as the sampler did. Entropy (nats) carries no gradient. ``mask_BT[:, 0]`` must be false.
        """
        hidden_BTD = self.model.get_decoder()(input_ids=ids_BT, use_cache=False).last_hidden_state
        # The state at t - 1 predicts the token at t.
        hidden_ND = hidden_BTD[:, :-1][mask_BT[:, 1:]]
        logprobs_N, entropy_N = self._score(hidden_ND, ids_BT[mask_BT], temperature)
        empty_BT = torch.zeros(ids_BT.shape, dtype=torch.float32, device=ids_BT.device)
        return empty_BT.masked_scatter(mask_BT, logprobs_N), empty_BT.masked_scatter(mask_BT, entropy_N)

    def _score(self, hidden_ND: Tensor, tokens_N: Tensor, temperature: float) -> tuple[Tensor, Tensor]:
        head = self.model.get_output_embeddings()
        if len(tokens_N) <= LOGIT_CHUNK_TOKENS:
            return score_tokens(head, hidden_ND, tokens_N, temperature)
        pieces = [
            checkpoint(score_tokens, head, hidden, tokens, temperature, use_reentrant=False)
            for hidden, tokens in zip(hidden_ND.split(LOGIT_CHUNK_TOKENS), tokens_N.split(LOGIT_CHUNK_TOKENS), strict=True)
        ]
        return torch.cat([logprobs for logprobs, _ in pieces]), torch.cat([entropy for _, entropy in pieces])


def score_tokens(head: nn.Module, hidden_ND: Tensor, tokens_N: Tensor, temperature: float) -> tuple[Tensor, Tensor]:
    """log p(token | hidden) at ``temperature`` and the entropy of that distribution, both of shape N, float32."""
    logits_NV = head(hidden_ND).float() / temperature
    normaliser_N = logits_NV.logsumexp(-1)
    logprobs_N = logits_NV.gather(-1, tokens_N.unsqueeze(-1)).squeeze(-1) - normaliser_N
    with torch.no_grad():
        entropy_N = normaliser_N - (torch.exp(logits_NV - normaliser_N.unsqueeze(-1)) * logits_NV).sum(-1)
    return logprobs_N, entropy_N


def load_base(path: Path, *, device: str, dtype: str) -> TokenScorer:
    """The frozen base from a local directory, on ``device``. Raises ``UnsupportedModel``."""
    model = AutoModelForCausalLM.from_pretrained(path, dtype=getattr(torch, dtype), local_files_only=True).to(device)
    model.requires_grad_(False).eval()
    scorer = TokenScorer(model)
    _check_logits(scorer, device)
    return scorer


def shard(scorer: TokenScorer, *, device: str, world_size: int, alone_too: bool = False) -> None:
    """Shard the base over the default process group: each decoder layer is gathered when it runs, the rest once per forward pass.

    A single rank has everything already: there FSDP's hooks would only cost time (a sixth of a small model's step), so it is left as it is,
    except with ``alone_too``.
    """
    if world_size == 1 and not alone_too:
        return
    mesh = init_device_mesh(torch.device(device).type, (world_size,))
    for layer in scorer.model.get_decoder().layers:
        fully_shard(layer, mesh=mesh)
    fully_shard(scorer, mesh=mesh)


def activation_bytes_per_token(model: nn.Module) -> int:
    """About what one token costs to differentiate: per layer 16 vectors of the hidden and 8 of the intermediate width.

    Measured with adapters on all layers: 2.5 MB on SmolLM2-135M in float32 (this says 2.6).
    """
    config = model.config
    widths = 16 * config.hidden_size + 8 * config.intermediate_size
    return config.num_hidden_layers * widths * model.dtype.itemsize


@torch.no_grad()
def _check_logits(scorer: TokenScorer, device: str) -> None:
    """Refuse models that scale or cap their logits between the head and the softmax: their log-probabilities would be silently wrong."""
    ids_BT = torch.arange(1, 9, device=device).unsqueeze(0)
    mask_BT = torch.ones_like(ids_BT, dtype=torch.bool)
    mask_BT[:, 0] = False
    ours_BT, _ = scorer(ids_BT, mask_BT, 1.0)
    theirs_BTV = scorer.model(input_ids=ids_BT, use_cache=False).logits.float().log_softmax(-1)
    theirs_BT = theirs_BTV[:, :-1].gather(-1, ids_BT[:, 1:].unsqueeze(-1)).squeeze(-1)
    if not torch.allclose(ours_BT[:, 1:], theirs_BT, atol=PROBE_TOLERANCE):
        raise UnsupportedModel(f"{type(scorer.model).__name__} alters its logits after the output layer, which training does not support")
