"""The sampler's adapter slots that jobs may use."""

from __future__ import annotations


class AdapterSlots:
    """``total`` slots, one per job that holds one. What ``reserve`` takes, ``release`` gives back.

    Lowering ``total`` evicts nobody; it keeps newcomers out until enough slots are free.
    """

    def __init__(self, total: int) -> None:
        self.total = total
        self._held: set[str] = set()

    def free(self) -> bool:
        return len(self._held) < self.total

    def reserve(self, job: str, *, force: bool = False) -> bool:
        """Take a slot if one is free; ``force`` takes one regardless (a live change of policy, a batch that a restart brought back).

        Raises ``ValueError`` when the job already has one.
        """
        if job in self._held:
            raise ValueError(f"{job} already holds a slot")
        if not force and not self.free():
            return False
        self._held.add(job)
        return True

    def release(self, job: str) -> None:
        """Give the slot back. Raises ``KeyError`` when the job has none."""
        self._held.remove(job)

    def holds(self, job: str) -> bool:
        return job in self._held

    def __len__(self) -> int:
        return len(self._held)
