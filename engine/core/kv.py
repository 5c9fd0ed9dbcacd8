"""The KV-cache account: who has reserved how many bytes of the sampler's cache."""

from __future__ import annotations


class KvAccount:
    """Reservations against ``budget_bytes`` (None: unbounded). What ``reserve`` takes, ``release`` gives back, to the byte.

    ``overcommit``: the multiple of the budget up to which is reserved, where something better than estimates bounds what really runs.
    A job larger than the whole budget fits only an empty account: it runs alone instead of never.
    Lowering the budget evicts nobody; it keeps newcomers out until enough has been released.
    """

    def __init__(self, budget_bytes: int | None, overcommit: float = 1.0) -> None:
        self.budget_bytes = budget_bytes
        self.overcommit = overcommit
        self.reserved_bytes = 0
        self._held: dict[str, int] = {}

    def fits(self, kv_bytes: int) -> bool:
        if self.budget_bytes is None or not self._held:
            return True
        return self.reserved_bytes + kv_bytes <= self.budget_bytes * self.overcommit

    def reserve(self, job: str, kv_bytes: int, *, force: bool = False) -> bool:
        """Reserve if it fits; ``force`` books it regardless (a live change of policy). Raises ``ValueError`` on a second reservation."""
        if job in self._held:
            raise ValueError(f"{job} already holds {self._held[job]} KV bytes")
        if kv_bytes < 0:
            raise ValueError(f"{job} reserves {kv_bytes} KV bytes")
        if not force and not self.fits(kv_bytes):
            return False
        self._held[job] = kv_bytes
        self.reserved_bytes += kv_bytes
        return True

    def release(self, job: str) -> int:
        """Give back what ``job`` holds and return it. Raises ``KeyError`` when it holds nothing."""
        kv_bytes = self._held.pop(job)
        self.reserved_bytes -= kv_bytes
        return kv_bytes

    def holds(self, job: str) -> bool:
        return job in self._held

    def __len__(self) -> int:
        return len(self._held)
