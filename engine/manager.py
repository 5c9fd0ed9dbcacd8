"""The manager: one per engine, the only one who writes. It takes requests, journals what they mean, and lets the driver act on it.

    request ─▶ Manager ─▶ journal (durable) ─▶ answer
                  └────▶ Driver ─▶ Scheduler ─▶ Work ─▶ sampler, trainer, store

It knows nothing of HTTP or Ray: ``service`` and ``runtime`` stand in front of it. Kill it at any moment: its successor reads the journal
and the HEADs (``restore``) and goes on.
"""

from __future__ import annotations

import asyncio
import dataclasses
import logging
from functools import partial
from pathlib import Path
from typing import Any

from engine import warm_start
from engine.blobs import BlobStore
from engine.clock import Clock, Timeline
from engine.core.messages import AdmissionChanged, Paused, PolicyChanged, Reprioritised, Resumed
from engine.core.policy import Policy
from engine.core.scheduler import Scheduler
from engine.data import Datasets
from engine.door import Door, misfit, runs_alone
from engine.driver import Deadlines, Driver
from engine.durable import CrashAt, no_crash
from engine.epoch import Epoch, claim
from engine.errors import Conflict, Invalid, NotFound
from engine.event_log import EventLog
from engine.events import Event
from engine.grader_spec import SamplingParams, shown
from engine.groups import Wanted
from engine.history import JobHistory
from engine.journal import Journal
from engine.kv_samples import KvSamples
from engine.late_rewards import LOOK_SECONDS
from engine.overview import Overview
from engine.ports import JudgeQuestion, PortError, RolloutPort, TrainPort
from engine.probes import Probes
from engine.prompts import Prompts
from engine.reading import Reading
from engine.removal import Removal
from engine.restore import Found, inspect, replay
from engine.software import installed
from engine.spec import ModelInfo, Submission, parse_job
from engine.store import Store
from engine.work import Work

logger = logging.getLogger(__name__)

# A poll costs every process on its way a millisecond, and a step says four things within a few: let them travel together.
GATHER_SECONDS = 0.03
ADMISSION_MODES = {"open": "open", "pause": "paused", "paused": "paused", "drain": "drain"}


class Manager:
    """``await start()`` before anything else. ``root`` is the engine's directory: EPOCH, ``journal/``, ``jobs/``.

    ``epoch``: the one to write under, if the caller has claimed it for the ports already; else the next is claimed.

    ``kv_sample_seconds``: how often the sampler's memory is looked at, where the policy is adaptive. ``late_look_seconds``: how often a
    rollout is asked whether its rewards time out. ``sandbox``: what the status says of the walls around tenants' code.

    ``failed`` is a future that holds the reason when this manager has become useless (a newer one has taken over, the journal cannot be
    written): its process should exit and be started anew.
    """

    def __init__(
        self,
        *,
        root: Path,
        blobs: BlobStore,
        model: ModelInfo,
        tokenizer: Path,
        policy: Policy,
        rollout: RolloutPort,
        train: TrainPort,
        clock: Clock,
        deadlines: Deadlines | None = None,
        epoch: Epoch | None = None,
        crash_at: CrashAt = no_crash,
        kv_sample_seconds: float = 0.5,
        late_look_seconds: float = LOOK_SECONDS,
        sandbox: dict[str, Any] | None = None,
    ):
        self._root = root
        self._model = model
        self._tokenizer = tokenizer
        self._shipped = self._policy = policy
        self._rollout = rollout
        self._train = train
        self._deadlines = deadlines or Deadlines()
        self._datasets = Datasets(blobs)
        self._door = Door(model, self._datasets)
        self._elsewhere: set[str] = set()  # open jobs of another base model: they stay as they are until it is back
        self._prompts = Prompts(self._datasets, rollout, seconds=self._deadlines.control)
        self._timeline = Timeline(clock)
        self._began = clock.monotonic()
        self._epoch = epoch
        self._crash_at = crash_at
        self._kv_sample_seconds, self._late_look_seconds = kv_sample_seconds, late_look_seconds
        self._sandbox = sandbox or {}
        self._sampling: asyncio.Task[None] | None = None
        self._ready = False

    # Life

    async def start(self) -> None:
        """Claim the next epoch, read what the last manager left, and go on with it."""
        self.failed: asyncio.Future[BaseException] = asyncio.get_running_loop().create_future()
        await asyncio.to_thread(self._open)
        self._log = EventLog(self._journal, on_failure=self._fail)
        self._policy = _with_changes(self._policy, self._history.policy_changes)
        self._driver = Driver(
            scheduler=Scheduler(self._policy), history=self._history, log=self._log, timeline=self._timeline, on_fatal=self._fail
        )
        self._driver.work = self._work = self._make_work()
        self._reading = self._make_reading()
        self._removal = Removal(self._driver, store=self._store, adapters=self._work.adapters)
        self._probes = self._make_probes()
        self._overview = self._make_overview()
        await self._restore()
        samples = KvSamples(self._driver, self._rollout, seconds=self._kv_sample_seconds, stats_seconds=self._deadlines.stats)
        self._sampling = asyncio.create_task(samples.run(), name="kv samples")
        self._ready = True

    async def stop(self) -> None:
        """Let go at once; whatever was under way is redone by the next manager."""
        self._ready = False
        if self._sampling is not None:
            self._sampling.cancel()
            await asyncio.gather(self._sampling, return_exceptions=True)
        await self._probes.stop()
        await self._driver.stop()
        await self._log.drain()

    def _open(self) -> None:
        self._epoch = self._epoch or claim(self._root)
        self._journal = Journal(self._root / "journal", self._epoch, crash_at=self._crash_at)
        self._store = Store(self._root / "jobs", self._epoch, crash_at=self._crash_at)
        self._began_at, self._began_seqs = self._journal.position()  # what earlier epochs have left; nothing of it changes any more
        self._history = replay(self._journal)

    def _make_work(self) -> Work:
        return Work(
            self._driver,
            store=self._store,
            datasets=self._datasets,
            rollout=self._rollout,
            train=self._train,
            deadlines=self._deadlines,
            late_look_seconds=self._late_look_seconds,
        )

    def _make_reading(self) -> Reading:
        return Reading(
            history=self._history,
            scheduler=self._driver.scheduler,
            store=self._store,
            datasets=self._datasets,
            rollout=self._rollout,
            timeline=self._timeline,
            stats_seconds=self._deadlines.stats,
        )

    def _make_overview(self) -> Overview:
        return Overview(
            history=self._history,
            scheduler=self._driver.scheduler,
            adapters=self._work.adapters,
            rollout=self._rollout,
            train=self._train,
            timeline=self._timeline,
        )

    def _make_probes(self) -> Probes:
        share = max(1, self._model.kv_budget_bytes // 4 // self._model.kv_bytes_per_token)
        return Probes(
            datasets=self._datasets,
            rollout=self._rollout,
            check=self._door.check,
            pace=lambda: self._history.pace,
            closed=lambda: self._driver.scheduler.admission.mode != "open",
            clock=self._timeline.monotonic,
            control_seconds=self._deadlines.control,
            kv_share=lambda spec: max(1, share // spec.context_tokens),
        )

    def _fail(self, error: BaseException) -> None:
        self._ready = False
        if not self.failed.done():
            self.failed.set_result(error)
            self._driver.die(error)

    async def _restore(self) -> None:
        jobs = list(self._history.jobs.values())
        await self._work.adapters.clear(jobs, self._model.job_slots)
        # Closed while they come back, so that who had a place takes it again before anybody new; a draining engine stays draining.
        closed = "drain" if self._history.admission == "drain" else "paused"
        self._driver.tell(AdmissionChanged(at=self._timeline.monotonic(), mode=closed))
        for job in jobs:
            if job.ended is not None:
                await asyncio.to_thread(self._removal.finish, job)
            else:
                self._resume_after_restart(job, await asyncio.to_thread(inspect, job, self._store))
        self._driver.tell(AdmissionChanged(at=self._timeline.monotonic(), mode=self._history.admission))

    def _resume_after_restart(self, job: JobHistory, found: Found) -> None:
        if found.broken is not None:
            self._driver.end(job.job, state="failed", reason=found.broken, attribution="platform")
        elif job.stop is None and (reason := misfit(job.spec, job.weights_sha256, self._model)) is not None:
            self._keep_for_its_model(job, found, reason)
        elif found.head is None:
            self._driver.spawn(job.job, "prepare", partial(self._work.prepare, job))
        else:
            self._tell_lost_step(job, found)
            if not found.ready:
                job.ready = None
            self._driver.enter(job)

    def _keep_for_its_model(self, job: JobHistory, found: Found, reason: str) -> None:
        self._elsewhere.add(job.job)
        self._tell_lost_step(job, found)
        if job.waiting_code != "model":
            self._driver.say(job.job, "waiting", {"code": "model", "reason": reason, "position": None})

    def _tell_lost_step(self, job: JobHistory, found: Found) -> None:
        if found.lost_step is not None:
            self._driver.say(job.job, "step", found.lost_step.data, at_seconds=found.lost_step.committed_at)

    # Requests about jobs

    async def submit(self, job: str, raw: Any) -> dict[str, Any]:
        """Accept a ``Submission`` for good. The same again answers ``created`` False; another body for a known id is a ``Conflict``."""
        submission = self._door.parse(job, raw)
        if job not in self._history.jobs:
            await self._check(submission)
        if (known := self._history.jobs.get(job)) is not None:
            if known.submission != submission:
                raise Conflict(f"job {job} was submitted before with another body", code="job_exists", param="job")
            await self._log.drain()
            return {"job": job, "created": False}
        await self._accept(job, submission)
        return {"job": job, "created": True}

    async def _check(self, submission: Submission) -> None:
        await asyncio.to_thread(self._door.check, submission.spec)
        weights = self._model.weights_sha256
        if problems := await asyncio.to_thread(warm_start.problems, submission, self._history.jobs, self._store, weights_sha256=weights):
            raise Invalid.of(problems)
        if problems := await self._prompts.problems(submission.spec):
            raise Invalid.of(problems)

    async def _accept(self, job: str, submission: Submission) -> None:
        needed = self._door.kv_bytes(submission.spec)
        data = {"submission": submission.model_dump(mode="json"), "kv_bytes": needed, "weights_sha256": self._model.weights_sha256}
        data["software"] = installed()
        if (origin := submission.spec.warm_start) is not None:
            data["warm_start"] = await asyncio.to_thread(warm_start.lineage, self._store, origin)
        accepted = self._driver.say(job, "accepted", data)
        if (budget := self._driver.scheduler.policy.kv_budget_bytes) is not None and needed > budget:
            self._driver.say(job, "warning", runs_alone(needed, budget))
        await accepted
        self._driver.spawn(job, "prepare", partial(self._work.prepare, self._history.jobs[job]))

    async def cancel(self, job: str, reason: str = "") -> dict[str, str]:
        """End the job; a training that has begun commits first. Tokens sampled until now are the user's."""
        history = self._open_job(job)
        if history.stop is not None:
            await self._log.drain()
            return {"job": job}
        stop = {"outcome": "cancelled", "reason": reason or "cancelled by its owner", "attribution": "user"}
        await self._driver.say(job, "stop_requested", stop)
        if job in self._elsewhere:
            self._driver.end(job, state=stop["outcome"], reason=stop["reason"], attribution=stop["attribution"])
        else:
            self._driver.stop_job(job, **stop)
        return {"job": job}

    async def pause(self, job: str, reason: str = "") -> dict[str, str]:
        """Hold the job as soon as its running step is committed."""
        history = self._open_job(job)
        if not history.pausing:
            await self._driver.say(job, "pause_requested", {"reason": reason})
            self._driver.tell(Paused(at=self._timeline.monotonic(), job=job))
        return {"job": job}

    async def resume(self, job: str, reason: str = "") -> dict[str, str]:
        history = self._open_job(job)
        if history.pausing:
            await self._driver.say(job, "resumed", {"version": history.version, "reason": reason})
            self._driver.tell(Resumed(at=self._timeline.monotonic(), job=job))
        return {"job": job}

    async def reprioritise(self, job: str, priority: int) -> dict[str, Any]:
        self._open_job(job)
        if not isinstance(priority, int) or not -100 <= priority <= 100:
            raise Invalid.of([("priority", "a whole number from -100 to 100")])
        await self._driver.say(job, "priority", {"priority": priority})
        self._driver.tell(Reprioritised(at=self._timeline.monotonic(), job=job, priority=priority))
        return {"job": job, "priority": priority}

    async def delete(self, job: str) -> dict[str, str]:
        return await self._removal.job(self._reading.job(job))

    async def delete_completions(self, job: str) -> dict[str, str]:
        return await self._removal.completions(self._reading.job(job))

    async def delete_version(self, job: str, version: int) -> dict[str, Any]:
        return await self._removal.version(self._reading.job(job), version)

    def _open_job(self, job: str) -> JobHistory:
        history = self._reading.job(job)
        if history.ended is not None:
            raise Conflict(f"job {job} has ended ({history.state})", code="job_ended", param="job")
        return history

    # Requests about the engine

    async def set_admission(self, mode: str) -> dict[str, str]:
        """``open`` admits, ``pause`` admits no new job, ``drain`` also starts no new step."""
        if mode not in ADMISSION_MODES:
            raise Invalid.of([("mode", f"choose among {', '.join(('open', 'pause', 'drain'))}")])
        await self._driver.say("", "admission", {"mode": ADMISSION_MODES[mode]})
        self._driver.tell(AdmissionChanged(at=self._timeline.monotonic(), mode=ADMISSION_MODES[mode]))
        return {"admission": ADMISSION_MODES[mode]}

    async def set_policy(self, changes: dict[str, Any]) -> dict[str, Any]:
        """Change fields of the running ``Policy``; it stays changed after a restart. See ``Policy.changed`` for ``adaptive``.

        A field that is thereby again what the engine is set up with is no change any more: it follows the settings of the next start.
        """
        try:
            policy = self._driver.scheduler.policy.changed(changes)
        except (TypeError, ValueError) as error:
            raise Invalid.of([("policy", str(error))]) from None
        usual = [name for name in changes if getattr(policy, name) == getattr(self._shipped, name)]
        await self._driver.say("", "policy", {"changes": changes, "usual": usual})
        self._driver.tell(PolicyChanged(at=self._timeline.monotonic(), policy=policy))
        return dataclasses.asdict(policy)

    # Answers

    async def health(self) -> dict[str, Any]:
        if not self._ready:
            return {"ok": False, "stage": "reading the journal"}
        return {"ok": True, "epoch": self._epoch.number}

    async def status(self) -> dict[str, Any]:
        measured = await self._reading.measured()  # first, so that the rest is of one moment
        return {
            "engine": self._journal.engine,
            "epoch": self._epoch.number,
            "journal": {"last": self._journal.last, "began": self._began_at},
            "policy": dataclasses.asdict(self._driver.scheduler.policy),
            "jobs": [{**line, "began_seq": self._began_seqs.get(line["job"], 0)} for line in self._reading.jobs()],
            **self._reading.places(),
            **measured,
            "sandbox": self._sandbox,
            "uptime_seconds": self._timeline.monotonic() - self._began,
        }

    async def overview(self) -> dict[str, Any]:
        """For the operators' console: what ``status`` says but ended jobs, and the ``Overview``."""
        measured = await self._reading.measured()
        return {
            "engine": self._journal.engine,
            "epoch": self._epoch.number,
            "offset": self._journal.last,
            "model": self._model.name,
            "kv_bytes_per_token": self._model.kv_bytes_per_token,
            "policy": dataclasses.asdict(self._driver.scheduler.policy),
            **self._reading.places(),
            **measured,
            "sandbox": self._sandbox,
            "uptime_seconds": self._timeline.monotonic() - self._began,
            **self._overview.describe(),
        }

    async def events(self, after: int, wait_seconds: float, limit: int) -> dict[str, Any]:
        """Events behind the cursor ``after``; ``last`` is the cursor for the next call, below ``after`` where the journal has gone back."""
        events = await self._log.read_after(after, wait_seconds=wait_seconds, limit=limit, gather_seconds=GATHER_SECONDS)
        return {
            "engine": self._journal.engine,
            "epoch": self._epoch.number,
            "events": [_shown(event) for event in events],
            "last": events[-1].offset if events else min(after, self._journal.last),
        }

    async def adapter(self, job: str, version: int | None) -> tuple[int, dict[str, bytes]]:
        return await self._reading.adapter(job, version)

    async def servable(self, tenant: str, job: str, version: int | None) -> int:
        return await self._reading.servable(tenant, job, version)

    async def evaluation(
        self, job: str, version: int | None, *, against: int, change: str | None, offset: int, limit: int
    ) -> dict[str, Any]:
        return await self._reading.evaluation(job, version, against=against, change=change, offset=offset, limit=limit)

    async def rollouts(self, job: str, version: int | None, *, offset: int, limit: int) -> dict[str, Any]:
        return await self._reading.rollouts(job, version, offset=offset, limit=limit)

    async def groups(
        self, job: str, version: int | None, wanted: Wanted, *, every: bool, offset: int, limit: int, tokens: bool
    ) -> dict[str, Any]:
        return await self._reading.groups(job, version, wanted, every=every, offset=offset, limit=limit, tokens=tokens)

    async def row_versions(self, job: str, row: int) -> dict[str, Any]:
        return await self._reading.row_versions(job, row)

    async def models(self) -> dict[str, Any]:
        return {"models": [self._model.model_dump(mode="json")]}

    async def tokenizer(self, model: str) -> bytes:
        """The content of tokenizer.json. Raises ``NotFound``."""
        if model != self._model.name:
            raise NotFound(f"this engine serves {self._model.name}, not {model}", code="model_not_found", param="model")
        return await asyncio.to_thread(self._tokenizer.read_bytes)

    async def estimate(self, raw: Any) -> dict[str, Any]:
        """See ``Door.estimate``; prompts that are too long stand against a job as well."""
        answer = await asyncio.to_thread(self._door.estimate, raw, self._driver.scheduler.policy.kv_budget_bytes)
        if not answer["problems"]:
            problems = await self._prompts.problems(parse_job(raw))
            answer["problems"] = [{"field": field, "message": message} for field, message in problems]
        return answer

    async def judge(self, raw: dict[str, Any]) -> dict[str, Any]:
        """A verdict of the base model, {"text", "tokens"}; or {"failed", "retry"}. For the Reward Lab, which has no sampler."""
        question = JudgeQuestion(**{**raw, "params": SamplingParams(**raw["params"])})
        try:
            answer = await self._driver.call(self._rollout.judge(question), seconds=self._deadlines.control, what="judging")
        except PortError as error:
            return {"failed": error.reason, "retry": error.attribution == "platform"}
        return {"text": answer.text, "tokens": answer.tokens}

    # Probes

    async def probe(self, probe: str, raw: Any) -> dict[str, Any]:
        return await self._probes.start(probe, raw)

    async def probe_state(self, probe: str) -> dict[str, Any]:
        return self._probes.state(probe)

    async def cancel_probe(self, probe: str) -> dict[str, Any]:
        return await self._probes.cancel(probe)


def _shown(event: Event) -> dict[str, Any]:
    """As it leaves the engine: a secret of a grader stays in the journal."""
    told = event.model_dump(mode="json")
    if event.kind == "accepted":
        spec = event.data["submission"]["spec"]
        submission = {**event.data["submission"], "spec": {**spec, "grader": shown(spec["grader"])}}
        told["data"] = {**told["data"], "submission": submission}
    return told


def _with_changes(policy: Policy, changes: dict[str, Any]) -> Policy:
    """``policy`` with what operators have changed. Changes that fit it no longer are left out: a start must not fail for an old wish."""
    try:
        return policy.changed(changes)
    except (TypeError, ValueError):
        logger.exception("the journal's changes of the policy do not fit it: %s; going on without them", changes)
        return policy
