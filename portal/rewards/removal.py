"""A reward's end. What no job ever used goes for good; of one that jobs did learn from, its name stays for their histories.

A job keeps a copy of its grader from the start, so nothing that has run loses what it ran with.
"""

from __future__ import annotations

from datetime import datetime

from django.db import transaction

from portal.errors import Conflict
from portal.rewards.models import LabRun, Reward
from portal.rewards.probe_models import OPEN_STATES as OPEN_PROBES
from tenants import audit
from tenants.access import require
from tenants.models import Role, Tenant, User


def delete_reward(tenant: Tenant, user: User, reward: Reward, now: datetime) -> None:
    """With its trials and probes. Raises ``Conflict`` while something uses it, ``Forbidden`` for viewers."""
    require(tenant, user, Role.MEMBER)
    with transaction.atomic():
        tenant.rewards.select_for_update().get(pk=reward.pk)  # a job that is just being made with it comes before or after
        if reason := in_use(reward):
            raise Conflict([("reward", reason)])
        audit.record(tenant, user, "reward.deleted", reward)
        if reward.jobs.exists():
            _leave_the_name(reward, now)
        else:
            reward.delete()


def in_use(reward: Reward) -> str:
    """Why it cannot go now, or ""."""
    if jobs := reward.jobs.filter(ended_at=None).count():
        return f"{'a job is' if jobs == 1 else f'{jobs:,} jobs are'} learning from it; stop {'it' if jobs == 1 else 'them'} first"
    if reward.probes.filter(state__in=OPEN_PROBES).exists():
        return "a probe of it is running; stop that first"
    if reward.lab_runs.filter(state=LabRun.State.RUNNING).exists():
        return "a trial of it is running; stop that first"
    return ""


def _leave_the_name(reward: Reward, now: datetime) -> None:
    for trials in (reward.sheets, reward.lab_runs, reward.probes):
        trials.all().delete()
    Reward.objects.filter(pk=reward.pk).update(deleted_at=now, grader={"type": reward.kind})
