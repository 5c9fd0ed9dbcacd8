"""Which versions of a job are to be evaluated, and which one is under way."""

from __future__ import annotations


class EvalPlan:
    """At most one evaluation outstanding per job. A newer due version replaces a pending one, except the first (0) and the last."""

    def __init__(self, *, steps: int, every: int, ends: bool, version: int, last_evaluated: int) -> None:
        self._steps = steps
        self._every = every
        self._ends = ends
        self.outstanding: int | None = None
        self.pending: list[int] = []
        for candidate in (0, version):  # after a restart: the first and the latest may have been lost
            if candidate > last_evaluated and candidate not in self.pending:
                self.committed(candidate)

    def is_due(self, version: int) -> bool:
        if self._ends and version in (0, self._steps):
            return True
        return bool(self._every) and version > 0 and version % self._every == 0

    def committed(self, version: int) -> None:
        if self.is_due(version):
            self.pending = [v for v in self.pending if v == 0]  # nothing comes after the last, so it is safe as it is
            self.pending.append(version)

    def start(self) -> int | None:
        """The version whose evaluation begins now, or None when one is under way or nothing is due."""
        if self.outstanding is not None or not self.pending:
            return None
        self.outstanding = self.pending.pop(0)
        return self.outstanding

    def ended(self, version: int) -> bool:
        """Whether ``version`` was the one under way; late and double answers are not."""
        if version != self.outstanding:
            return False
        self.outstanding = None
        return True

    def idle(self) -> bool:
        return self.outstanding is None and not self.pending
