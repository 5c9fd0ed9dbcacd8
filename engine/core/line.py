"""Waiting lines: an order with cheap removal from the middle, and one line per tenant under a common order."""

from __future__ import annotations

import heapq
from collections.abc import Callable, Iterator

Key = tuple[float, ...]


class Line:
    """Jobs in the order of their keys. ``add`` is O(log n), ``discard`` O(1), ``first`` amortised O(log n).

    Removal is lazy: an entry of the heap counts only while the job's current key is the entry's key.
    """

    def __init__(self) -> None:
        self._keys: dict[str, Key] = {}
        self._heap: list[tuple[Key, str]] = []

    def add(self, job: str, key: Key) -> None:
        """Put ``job`` at ``key``; a job that is already in the line moves there."""
        self._keys[job] = key
        heapq.heappush(self._heap, (key, job))
        if len(self._heap) > 2 * len(self._keys) + 64:
            self._heap = [(k, j) for j, k in self._keys.items()]
            heapq.heapify(self._heap)

    def discard(self, job: str) -> None:
        self._keys.pop(job, None)

    def first(self) -> str | None:
        heap, keys = self._heap, self._keys
        while heap:
            key, job = heap[0]
            if keys.get(job) == key:
                return job
            heapq.heappop(heap)
        return None

    def first_key(self) -> Key:
        """The key of the first; raises ``IndexError`` when the line is empty."""
        self.first()
        return self._heap[0][0]

    def key(self, job: str) -> Key:
        return self._keys[job]

    def count_before(self, key: Key) -> int:
        return sum(other < key for other in self._keys.values())

    def __len__(self) -> int:
        return len(self._keys)

    def __contains__(self, job: str) -> bool:
        return job in self._keys

    def __iter__(self) -> Iterator[str]:
        """In order; O(n log n), for views only."""
        return iter(sorted(self._keys, key=self._keys.__getitem__))


TenantKey = tuple[float, int]
Place = tuple[TenantKey, Key]
EQUAL: TenantKey = (0.0, 0)


class OneLine:
    """All tenants in one line, with the verbs of ``TenantLines``: cheaper where the order does not ask for the tenant."""

    def __init__(self) -> None:
        self._line = Line()

    def add(self, job: str, tenant: str, key: Key) -> None:
        self._line.add(job, key)

    def discard(self, job: str, tenant: str) -> None:
        self._line.discard(job)

    def first(self) -> str | None:
        return self._line.first()

    def first_place(self) -> Place | None:
        return (EQUAL, self._line.first_key()) if len(self._line) else None

    def touch(self, tenant: str) -> None:
        """Tenants are equal."""

    def holds(self, job: str, tenant: str) -> bool:
        return job in self._line

    def place(self, job: str, tenant: str) -> Place:
        return EQUAL, self._line.key(job)

    def count_before(self, place: Place) -> int:
        return self._line.count_before(place[1])

    def places(self) -> list[tuple[TenantKey, Key, str]]:
        return [(EQUAL, self._line.key(job), job) for job in self._line]

    def __len__(self) -> int:
        return len(self._line)

    def __iter__(self) -> Iterator[str]:
        return iter(self._line)


class TenantLines:
    """One ``Line`` per tenant, served in the order of (tenant's key, key of the tenant's first job): its ``Place``.

    A parked tenant (at its running cap) is passed over without being searched: it leaves the common order until unparked.
    ``tenant_key`` is asked whenever a tenant is touched; call ``touch`` after it changed. None: all tenants are equal.
    """

    def __init__(self, tenant_key: Callable[[str], TenantKey] | None = None) -> None:
        self._tenant_key = tenant_key or _equal
        self._lines: dict[str, Line] = {}
        self._heap: list[tuple[float, int, Key, int, str]] = []  # flat: nested tuples take twice as long to compare
        self._stamps: dict[str, int] = {}
        self._stamp = 0
        self._parked: set[str] = set()
        self._count = 0

    def add(self, job: str, tenant: str, key: Key) -> None:
        line = self._lines.get(tenant)
        if line is None:
            line = self._lines[tenant] = Line()
        was_first = line.first()
        self._count += job not in line
        line.add(job, key)
        if job in (was_first, line.first()):
            self.touch(tenant)

    def discard(self, job: str, tenant: str) -> None:
        line = self._lines.get(tenant)
        if line is None or job not in line:
            return
        was_first = line.first() == job
        line.discard(job)
        self._count -= 1
        if not len(line):
            del self._lines[tenant]
        if was_first:
            self.touch(tenant)

    def park(self, tenant: str) -> None:
        if tenant not in self._parked:
            self._parked.add(tenant)
            self.touch(tenant)

    def unpark(self, tenant: str) -> None:
        if tenant in self._parked:
            self._parked.discard(tenant)
            self.touch(tenant)

    def touch(self, tenant: str) -> None:
        """Give ``tenant`` its right place in the common order again."""
        self._stamps.pop(tenant, None)
        line = self._lines.get(tenant)
        if line is None or tenant in self._parked:
            return
        self._stamp += 1
        self._stamps[tenant] = self._stamp
        heapq.heappush(self._heap, (*self._tenant_key(tenant), line.first_key(), self._stamp, tenant))
        if len(self._heap) > 2 * len(self._stamps) + 64:
            self._heap = [entry for entry in self._heap if self._stamps.get(entry[4]) == entry[3]]
            heapq.heapify(self._heap)

    def first(self) -> str | None:
        """The next job of a tenant that is not parked."""
        heap = self._heap
        while heap:
            _, _, _, stamp, tenant = heap[0]
            if self._stamps.get(tenant) == stamp:
                return self._lines[tenant].first()
            heapq.heappop(heap)
        return None

    def first_place(self) -> Place | None:
        """Where the next job stands, to be compared with the first of other lines of the same order."""
        if self.first() is None:
            return None
        served, since, key, _, _ = self._heap[0]
        return (served, since), key

    def holds(self, job: str, tenant: str) -> bool:
        return job in self._lines.get(tenant, ())

    def is_in_order(self, tenant: str) -> bool:
        """Whether a job of ``tenant`` stands here and it is not parked."""
        return tenant in self._stamps

    def is_parked(self, tenant: str) -> bool:
        return tenant in self._parked

    def __len__(self) -> int:
        return self._count

    def place(self, job: str, tenant: str) -> Place:
        """Raises ``KeyError`` when the job is not here."""
        return self._tenant_key(tenant), self._lines[tenant].key(job)

    def count_before(self, place: Place) -> int:
        """How many stand before ``place``. O(tenants + jobs of tenants with the same key)."""
        tenant_key, key = place
        count = 0
        for tenant, line in self._lines.items():
            other = self._tenant_key(tenant)
            if other < tenant_key:
                count += len(line)
            elif other == tenant_key:
                count += line.count_before(key)
        return count

    def places(self) -> list[tuple[TenantKey, Key, str]]:
        """Every job with its place, in order, parked or not; O(n log n), for views only."""
        return sorted((self._tenant_key(tenant), line.key(job), job) for tenant, line in self._lines.items() for job in line)

    def __iter__(self) -> Iterator[str]:
        """Every job in order, parked or not; O(n log n), for views only."""
        return (job for _, _, job in self.places())


def _equal(tenant: str) -> TenantKey:
    return EQUAL
