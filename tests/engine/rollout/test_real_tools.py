"""Agents on the real engine: a small adapter is taught to call, read and answer; then its tools answer, are slow, fail or hang."""

from __future__ import annotations

import asyncio
import dataclasses

import pytest

from engine.ports import Snapshot
from engine.rewards.pool import GraderPool
from engine.rewards.sandbox import Sandbox, SandboxSettings
from engine.rollout.sampling import SampleParams
from engine.rollout.tools_search import Searches
from engine.spec import parse_job
from engine.trajectory import decode
from tests.engine.rollout.fakes import rollout_request, row
from tests.engine.rollout.test_real_turns import Recorder, turn_by_turn
from tests.engine.rollout.wiki_stub import wiki_stub

pytestmark = [pytest.mark.engine, pytest.mark.asyncio(loop_scope="session"), pytest.mark.timeout(180)]

CALL, PROGRAM = "<tool>search: moss</tool>", "<tool>python: 6*7</tool>"
READ = {
    "well": "Moss: grows on stones",
    "failing": "error: the search is not available: status 503",
    "silent": "error: search gave no answer in time",
}
ERRORS = {"well": None, "failing": "unavailable", "silent": "timeout"}


@pytest.fixture(scope="module")
def searcher(base) -> Snapshot:
    """An adapter that has learned by heart to search for moss at "?", to run a program at "=", and to answer "ok" to whatever it reads."""
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
    stories.append([("=", False), (PROGRAM, True), ("<result>42</result>", False), ("ok", True)])
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


WIKI = {"type": "endpoint", "name": "wiki"}


async def roll_out(sampler, base, files: Snapshot, job: str, searches: Searches, *, source=WIKI, prompt="?", programs=None, **changes):
    from engine.rollout.tokens import ModelTokens
    from engine.rollout.worker import RolloutWorker

    recorder, tokens = Recorder(sampler), ModelTokens.load(base.path)
    worker = RolloutWorker(sampler=recorder, tokens=tokens, grading=GraderPool(), searches=searches, programs=programs)
    request = rollout_request(job, rows=[row(3, prompt), row(9, prompt)])
    environment = {
        "type": "tools",
        "tools": ["search", "python"],
        "search": {"source": source},
        "max_calls": 2,
        "call_seconds": 1.0,
        "max_observation_tokens": 80,
        "instructions": "",
    }
    spec = request.spec.model_dump(mode="json") | {
        "environment": environment | changes,
        "rollout": {"prompts_per_step": 2, "group_size": 4, "max_prompt_tokens": 8, "max_new_tokens": 40, "temperature": 0.1},
        "grader": {"type": "string_check", "reference": "ok"},
    }
    result = await worker.rollout(dataclasses.replace(request, spec=parse_job(spec), adapter_files=files))
    await searches.close()
    return recorder, decode(result.batch).trajectories, result.summary


def wiki_at(url: str) -> Searches:
    return Searches.of(blob_path=lambda ref: None, folder=None, endpoints={"wiki": url})


def check_episodes(recorder, trajectories, summary, *, call: str, read: str, error: str | None = None) -> None:
    """All of them called once, read ``read`` and answered; and the ids of each turn are those that were asked and sampled."""
    for t in trajectories:
        assert [(turn.text, turn.observation) for turn in t.turns] == [(call, read), ("ok", "")]
        assert [found.error for found in t.tool_calls] == [error]
        assert (t.reward, t.finish_reason) == (1.0, "stop")
    sampled = sorted((recorder.prompts[seed], recorder.answers[seed]) for seed in recorder.prompts)
    assert sampled == sorted(turn for t in trajectories for turn in turn_by_turn(t))
    assert (summary["tool_calls"], summary["finish_reasons"]) == (8, {"stop": 8})
    assert summary["tool_failures"] == ({error: 8} if error else {})


@pytest.mark.parametrize("mode", ["well", "failing", "silent"])
async def test_every_episode_ends_however_the_search_answers(sampler, base, searcher, mode):
    async with wiki_stub(mode) as url:
        recorder, trajectories, summary = await roll_out(sampler, base, searcher, f"agent-{mode}", wiki_at(url))

    check_episodes(recorder, trajectories, summary, call=CALL, read=READ[mode], error=ERRORS[mode])
    assert {(call.tool, call.argument) for t in trajectories for call in t.tool_calls} == {("search", "moss")}


async def test_a_slow_search_is_asked_by_all_at_once_and_holds_up_nobody_else(sampler, base, searcher):
    hold, waiting = asyncio.Event(), []
    async with wiki_stub("well", hold=hold, waiting=waiting) as url:
        slow = asyncio.create_task(roll_out(sampler, base, searcher, "agent-slow", wiki_at(url), call_seconds=100.0))
        while len(waiting) < 8:
            await asyncio.sleep(0)
        # All eight wait for the search; another job's whole rollout goes through beside them.
        _, others, _ = await roll_out(sampler, base, searcher, "agent-quick", Searches.bundled(), source={"type": "bundled"})
        assert (slow.done(), len(others)) == (False, 8)
        hold.set()
        check_episodes(*await slow, call=CALL, read=READ["well"])


async def test_the_embedded_index_of_an_uploaded_corpus_is_searched(sampler, base, searcher, tmp_path):
    corpus = tmp_path / "corpus.jsonl"
    corpus.write_text('{"title": "Moss", "text": "grows on stones"}\n{"title": "Fern", "text": "grows in the shade"}\n')
    searches = Searches.of(blob_path=lambda ref: corpus, folder=tmp_path / "index", endpoints={})
    source = {"type": "corpus", "blob": {"sha256": "a" * 64, "bytes": 1}}

    found = await roll_out(sampler, base, searcher, "agent-corpus", searches, source=source)

    check_episodes(*found, call=CALL, read=READ["well"])


async def test_a_program_runs_in_the_sandbox_and_its_output_is_read(sampler, base, searcher):
    sandbox = Sandbox(SandboxSettings(tier="plain", memory_bytes=256 * 2**20, spares=2, max_workers=8))
    try:
        tools = {"source": {"type": "bundled"}, "programs": sandbox, "call_seconds": 60.0}
        found = await roll_out(sampler, base, searcher, "agent-python", Searches.bundled(), prompt="=", **tools)
    finally:
        await sandbox.close()

    check_episodes(*found, call=PROGRAM, read="42")


async def test_log_probabilities_survive_stop_strings_and_tool_text(sampler, base, searcher):
    async with wiki_stub("well") as url:
        _, (t, *_), _ = await roll_out(sampler, base, searcher, "agent-logprobs", wiki_at(url))
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
