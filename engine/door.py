"""What is checked before a job is let in: no accepted job may fail later for its configuration."""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Any, TypeVar

from engine.blobs import BlobCorrupt, BlobMissing
from engine.data import Datasets
from engine.environment_spec import Tools, UploadedCorpus
from engine.errors import Invalid, Problems
from engine.spec import JobSpec, ModelInfo, SpecError, Submission, check_against, kv_bytes, parse_job, parse_submission

Parsed = TypeVar("Parsed")
_JOB_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9_-]{0,63}")


class Door:
    """Checks jobs against the engine's ``model`` and the datasets. ``check`` and ``estimate`` block on the disk: call them in a thread."""

    def __init__(self, model: ModelInfo, datasets: Datasets):
        self._model = model
        self._datasets = datasets

    def parse(self, job: str, raw: Any) -> Submission:
        """Raises ``Invalid`` with every bad field."""
        if not _JOB_NAME.fullmatch(job):
            raise Invalid.of([("job", "use 1 to 64 letters, digits, dashes and underscores")])
        return _parsed(parse_submission, raw)

    def kv_bytes(self, spec: JobSpec) -> int:
        return kv_bytes(spec, self._model.kv_bytes_per_token)

    def check(self, spec: JobSpec) -> None:
        """Raises ``Invalid`` for what this engine cannot run, and for datasets that are not there or not as described."""
        if problems := self._problems(spec):
            raise Invalid.of(problems)

    def estimate(self, raw: Any, budget_bytes: int | None) -> dict[str, Any]:
        """What a ``JobSpec`` would take, and what stands against it. Raises ``Invalid`` only when it cannot be read at all."""
        spec = _parsed(parse_job, raw)
        needed = self.kv_bytes(spec)
        return {
            "kv_bytes": needed,
            "budget_bytes": budget_bytes,
            "runs_alone": budget_bytes is not None and needed > budget_bytes,
            "problems": [{"field": field, "message": message} for field, message in self._problems(spec)],
        }

    def _problems(self, spec: JobSpec) -> Problems:
        try:
            check_against(spec, self._model)
        except SpecError as error:
            return error.problems
        data = spec.dataset
        splits = [("train", data.train, data.train_rows), ("eval", data.eval, data.eval_rows)]
        found = [problem for name, ref, rows in splits if ref is not None for problem in self._split_problems(name, ref, rows)]
        return found + self._corpus_problems(spec)

    def _corpus_problems(self, spec: JobSpec) -> Problems:
        """An uploaded search corpus must be there; its lines are read when its index is made."""
        source = spec.environment.search.source if isinstance(spec.environment, Tools) else None
        if not isinstance(source, UploadedCorpus):
            return []
        try:
            self._datasets.file(source.blob)
        except (BlobMissing, BlobCorrupt) as error:
            return [("environment.search.source.blob", str(error))]
        return []

    def _split_problems(self, name: str, ref: Any, rows: int) -> Problems:
        try:
            found = len(self._datasets.file(ref))
        except (BlobMissing, BlobCorrupt) as error:
            return [(f"dataset.{name}", str(error))]
        return [] if found == rows else [(f"dataset.{name}_rows", f"the file has {found} rows, not {rows}")]


def misfit(spec: JobSpec, weights_sha256: str, model: ModelInfo) -> str | None:
    """Why a job that was accepted on another base model must not go on with this one; None when it is the same."""
    if spec.base_model != model.name:
        return f"waits until the engine serves {spec.base_model} again; it serves {model.name} now"
    if weights_sha256 and model.weights_sha256 and weights_sha256 != model.weights_sha256:
        return f"waits until the engine has the weights of {model.name} again that the job began with"
    return None


def runs_alone(needed_bytes: int, budget_bytes: int) -> dict[str, str]:
    """The data of the warning to a job that is larger than the KV budget."""
    needed, budget = (f"{amount / 1e6:,.1f} MB" for amount in (needed_bytes, budget_bytes))
    return {
        "code": "runs_alone",
        "message": f"one step may take {needed} of KV cache, the engine has {budget}: the job will run alone",
        "advice": "Fewer prompts per step, smaller groups or shorter completions let it share the engine.",
    }


def _parsed(parse: Callable[[Any], Parsed], raw: Any) -> Parsed:
    try:
        return parse(raw)
    except SpecError as error:
        raise Invalid.of(error.problems) from None
