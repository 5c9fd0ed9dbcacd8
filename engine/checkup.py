"""After each step and evaluation the doctor looks at the job: findings become events, and some of them pause it.

The pause is the same as a person's: the running step commits first, and the job goes on when it is resumed.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from engine.core.messages import Paused
from engine.doctor.examine import diagnose, is_over
from engine.driver import Driver
from engine.history import JobHistory

# Of a step's completions: with more of them invalid the job pauses.
MOST_INVALID = 0.2


def look_at(driver: Driver, job: JobHistory) -> None:
    """Say what is new, and what is over. Findings are durable like any event: after a restart none is told twice."""
    evals = list(job.evaluations.values())
    present = {finding.code: finding for finding in diagnose(job.figures, evals)}
    for code, finding in present.items():
        if code not in job.findings:
            driver.say(job.job, "finding", finding.as_dict())
            if code in job.spec.doctor.pause_on:
                pause(driver, job, code=code, reason=f"{finding.title}. {finding.evidence} {finding.advice}")
    for code in [code for code in job.findings if code not in present and is_over(code, job.figures, evals)]:
        driver.say(job.job, "finding_over", {"code": code, "step": job.version})


def look_for_silence(driver: Driver, job: JobHistory) -> None:
    """Pause a job that has learned nothing for so many steps in a row that it only costs its owner money."""
    most = job.spec.rollout.max_silent_steps
    if most and job.silent_steps >= most:
        advice = "Use prompts that are neither too easy nor too hard, larger groups, or a reward that tells completions apart."
        reason = f"{job.silent_steps} steps in a row carried no signal, so nothing was learned."
        pause(driver, job, code="no_signal", reason=f"{reason} {advice}")


def look_for_invalid(driver: Driver, job: JobHistory, rollout: Mapping[str, Any]) -> None:
    """Pause a job whose grader fails too often: what is left of a step is then no fair sample of it. ``rollout``: of the step."""
    invalid, completions = rollout["invalid"], rollout["completions"]
    if invalid > MOST_INVALID * completions:
        advice = "If its endpoint or judge was down, resume; else mend the reward, try it in the Reward Lab, and start a new job with it."
        reason = (
            f"{invalid} of {completions} completions of a step could not be graded: {rollout.get('invalid_reason') or 'no reason given'}."
        )
        pause(driver, job, code="invalid", reason=f"{reason} {advice}")


def pause(driver: Driver, job: JobHistory, *, code: str, reason: str) -> None:
    """Not behind the last step: there is nothing left to hold."""
    if job.pausing or job.version >= job.spec.train.steps:
        return
    data: dict[str, Any] = {"reason": reason, "code": code}
    driver.say(job.job, "pause_requested", data)
    driver.tell(Paused(at=driver.timeline.monotonic(), job=job.job))
