"""Prompt lengths of a stored dataset in a base model's tokens. Datasets are immutable, so each model is measured once."""

from __future__ import annotations

import json
from datetime import datetime, timedelta
from typing import Any

import structlog
from django.db import transaction
from django.utils import timezone
from django.utils.dateparse import parse_datetime

from portal.datasets.findings import Findings
from portal.datasets.lengths import Lengths
from portal.datasets.models import Dataset
from portal.datasets.preview import store_of
from portal.datasets.rows import Row
from portal.datasets.tokenizer_files import NoTokenizer, ruler

log = structlog.get_logger(__name__)
INLINE_BYTES = 8 << 20
LATE_AFTER = timedelta(minutes=30)


def begin(dataset: Dataset, model: str, now: datetime) -> None:
    """Measure here if the dataset is small, else by a worker; once for any number of requests."""
    from portal.datasets.tasks import measure_prompts

    known = dataset.lengths.get(model)
    if known and "rows" in known:
        return
    if known and known.get("since") and now - parse_datetime(known["since"]) < LATE_AFTER:
        return
    if dataset.train_bytes + dataset.eval_bytes <= INLINE_BYTES:
        measure(dataset, model)
        return
    _note(dataset, model, {"model": model, "since": now.isoformat()})
    transaction.on_commit(lambda: measure_prompts.apply_async((dataset.pk, model), retry=False), robust=True)


def measure(dataset: Dataset, model: str) -> None:
    """Write the figures, or why there are none, into the dataset's row."""
    try:
        findings = Findings()
        lengths = Lengths(ruler(model), findings)
        for split in ("train", "eval"):
            _add(dataset, split, lengths)
        _note(dataset, model, {**lengths.figures(), "rows_over": [fault["line"] for fault in findings.listed[:20]]})
    except NoTokenizer as error:
        log.info("lengths_not_measured", dataset=dataset.public_id, model=model, reason=str(error))
        _note(dataset, model, {"model": model, "problem": str(error), "at": timezone.now().isoformat()})


def _add(dataset: Dataset, split: str, lengths: Lengths) -> None:
    blob = dataset.blob(split)
    if blob is None:
        return
    with store_of().open(blob) as file:
        for line in file:
            row = json.loads(line)
            lengths.add(row["row"], Row(row["messages"], {}))


def _note(dataset: Dataset, model: str, figures: dict[str, Any]) -> None:
    with transaction.atomic():
        row = Dataset.objects.select_for_update().get(pk=dataset.pk)
        row.lengths[model] = figures
        row.save(update_fields=["lengths"])
    dataset.lengths = row.lengths
