"""Which engine a job is with: the one that serves its base model when it is first sent, and that one to its end.

An engine is known by its configured name ("" for the one at MARLAAS_ENGINE_URL); what its journal is called is its own affair. With one
engine nothing is looked up.
"""

from __future__ import annotations

from portal import gateway
from portal.jobs.models import EngineCursor, EngineModel, Job, JobSubmission


def name_for(model: str) -> str:
    """Who serves this base model; the first engine also where nobody is known to, since it says so best."""
    if len(gateway.names()) == 1:
        return ""
    return EngineModel.objects.filter(name=model).values_list("served_by", flat=True).first() or ""


def name_of(job: Job) -> str:
    """Whose journal took it; before that, whom it was sent to; before that, who serves its model."""
    if len(gateway.names()) == 1:
        return ""
    if job.engine:
        known = EngineCursor.objects.filter(engine=job.engine).values_list("name", flat=True).first()
    else:
        known = JobSubmission.objects.filter(job=job).values_list("sent_to", flat=True).first()
    return name_for(job.base_model) if known is None else known


def serving(model: str) -> gateway.Gateway:
    """Raises ``EngineDown``."""
    return gateway.engine(name_for(model))


def of(job: Job) -> gateway.Gateway:
    """Raises ``EngineDown``."""
    return gateway.engine(name_of(job))


def send_to(submission: JobSubmission) -> str:
    """The engine that this submission goes to, decided once: a second try goes to the first one's, whatever is served where by then."""
    if submission.sent_to is None:
        chosen = name_for(submission.job.base_model)
        JobSubmission.objects.filter(pk=submission.pk, sent_to=None).update(sent_to=chosen)
        submission.refresh_from_db(fields=["sent_to"])
    return submission.sent_to or ""
