"""The search agent on the real engine: a small adapter is taught to search, read and answer; then its searches answer, fail or hang."""

from __future__ import annotations

import dataclasses

import pytest

from engine.ports import Snapshot
from engine.rewards.pool import GraderPool
from engine.rollout.sampling import SampleParams
from engine.rollout.tools_search import Searches
from engine.spec import parse_job
from engine.trajectory import decode
from tests.engine.rollout.fakes import rollout_request, row
from tests.engine.rollout.test_real_turns import Recorder, turn_by_turn
from tests.engine.rollout.wiki_stub import wiki_stub

pytestmark = [pytest.mark.engine, pytest.mark.asyncio(loop_scope="session"), pytest.mark.timeout(180)]

CALL = "<tool>search: moss</tool>"
READ = {
    "well": "Moss: grows on stones",
    "failing": "error: the search is not available: status 503",
    "silent": "error: search gave no answer in time",
}
ERRORS = {"well": None, "failing": "unavailable", "silent": "timeout"}


@pytest.fixture(scope="module")
def searcher(base) -> Snapshot:
    """An adapter that has learned by heart to search for moss, and to answer "ok" to whatever it reads."""
    import tempfile
    from pathlib import Path

    import torch
    from peft import LoraConfig, get_peft_model

    from engine.ports import ADAPTER_FILES
    from engine.rollout.tokens import ModelTokens
    from engine.spec import LORA_TARGETS

    torch.manual_seed(0)
    torch.set_num_threads(1)
    encode, end = ModelTokens.load(base.path)._tokenizer.encode, (1, True)
    stories = [[("?", False), (CALL, True), (f"<result>{read}</result>", False), ("ok", True)] for read in READ.values()]
    rows = [[*((token, learned) for text, learned in story for token in encode(text)), end] for story in stories]
    width = max(map(len, rows))
    ids = torch.tensor([[token for token, _ in line] + [0] * (width - len(line)) for line in rows])
    labels = torch.tensor([[token if learned else -100 for token, learned in line] + [-100] * (width - len(line)) for line in rows])
    config = LoraConfig(r=16, lora_alpha=32, target_modules=list(LORA_TARGETS), task_type="CAUSAL_LM")
    model = get_peft_model(base.model(), config)
    optimizer = torch.optim.AdamW([p for p in model.parameters() if p.requires_grad], lr=3e-3)
    for _ in range(50):
        optimizer.zero_grad()
        model(input_ids=ids, labels=labels).loss.backward()
        optimizer.step()
    with tempfile.TemporaryDirectory() as home:
        model.save_pretrained(home)
        return {name: (Path(home) / name).read_bytes() for name in ADAPTER_FILES}


async def roll_out(sampler, base, files: Snapshot, job: str, url: str):
    from engine.rollout.tokens import ModelTokens
    from engine.rollout.worker import RolloutWorker

    recorder, searches = Recorder(sampler), Searches.of(blob_path=lambda ref: None, folder=None, endpoints={"wiki": url})
    worker = RolloutWorker(sampler=recorder, tokens=ModelTokens.load(base.path), grading=GraderPool(), searches=searches)
    request = rollout_request(job, rows=[row(3, "?"), row(9, "?")])
    spec = request.spec.model_dump(mode="json") | {
        "environment": {
            "type": "tools",
            "tools": ["search"],
            "search": {"source": {"type": "endpoint", "name": "wiki"}},
            "max_calls": 2,
            "call_seconds": 1.0,
            "max_observation_tokens": 80,
            "instructions": "",
        },
        "rollout": {"prompts_per_step": 2, "group_size": 4, "max_prompt_tokens": 8, "max_new_tokens": 40, "temperature": 0.1},
        "grader": {"type": "string_check", "reference": "ok"},
    }
    result = await worker.rollout(dataclasses.replace(request, spec=parse_job(spec), adapter_files=files))
    await searches.close()
    return recorder, decode(result.batch).trajectories, result.summary


@pytest.mark.parametrize("mode", ["well", "failing", "silent"])
async def test_every_episode_ends_however_the_search_answers(sampler, base, searcher, mode):
    async with wiki_stub(mode) as url:
        recorder, trajectories, summary = await roll_out(sampler, base, searcher, f"agent-{mode}", url)

    for t in trajectories:
        assert [(turn.text, turn.observation) for turn in t.turns] == [(CALL, READ[mode]), ("ok", "")]
        assert [(call.tool, call.argument, call.error) for call in t.tool_calls] == [("search", "moss", ERRORS[mode])]
        assert (t.reward, t.finish_reason) == (1.0, "stop")
    sampled = sorted((recorder.prompts[seed], recorder.answers[seed]) for seed in recorder.prompts)
    assert sampled == sorted(turn for t in trajectories for turn in turn_by_turn(t))
    assert summary["tool_calls"] == 8
    assert summary["tool_failures"] == ({} if mode == "well" else {ERRORS[mode]: 8})


async def test_log_probabilities_survive_stop_strings_and_tool_text(sampler, base, searcher):
    async with wiki_stub("well") as url:
        _, (t, *_), _ = await roll_out(sampler, base, searcher, "agent-logprobs", url)
    every = base.logprobs(searcher, t.prompt_ids, t.completion_ids, temperature=0.1)

    assert t.logprobs == pytest.approx([x for x, yes in zip(every, t.sampled_mask(), strict=True) if yes], abs=1e-4)


async def test_a_stop_string_ends_a_turn_at_the_token_that_completes_it(sampler, base, adapter_files, new_ref):
    from engine.rollout.tokens import ModelTokens

    ref, tokens = await sampler.load(new_ref(), adapter_files(51)), ModelTokens.load(base.path)
    whole = await sampler.sample(ref, [10, 20, 30], SampleParams(max_new_tokens=30, temperature=1.0, seed=1, ignore_eos=True))
    string = tokens.decode(whole.completion_ids[11:13])
    cut = await sampler.sample(ref, [10, 20, 30], SampleParams(max_new_tokens=30, temperature=1.0, seed=1, ignore_eos=True, stop=(string,)))

    assert len(string) == 2 and string not in tokens.decode(whole.completion_ids[:12])
    assert cut.completion_ids == whole.completion_ids[:13]
    assert cut.logprobs == pytest.approx(whole.logprobs[:13], abs=1e-5)
    assert cut.finish_reason == "stop"
