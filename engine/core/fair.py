"""Weighted fair share between tenants: virtual time, as in weighted fair queueing (Demers, Keshav and Shenker, 1989)."""

from __future__ import annotations


class FairShare:
    """Who has been served least per unit of weight.

    A tenant's virtual time grows by amount / weight with each service, the system's by amount / (sum of the active tenants' weights).
    A tenant that becomes active starts at the system's time at least: idleness earns no credit, and since the system's time grows with
    every service, a waiting tenant is soon older than any newcomer. That is the ageing: nobody waits behind more than its fair share.
    Amounts are KV bytes of dispatched steps: tokens at full context times a constant of the base model.
    """

    def __init__(self) -> None:
        self._now = 0.0
        self._virtual: dict[str, float] = {}
        self._weights: dict[str, float] = {}
        self._weight_sum = 0.0

    def join(self, tenant: str, weight: float) -> None:
        """``tenant`` has work from now on; joining again only changes its weight."""
        if tenant in self._weights:
            self._weight_sum -= self._weights[tenant]
        else:
            self._virtual[tenant] = max(self._virtual.get(tenant, 0.0), self._now)
        self._weights[tenant] = weight
        self._weight_sum += weight

    def leave(self, tenant: str) -> None:
        """``tenant`` has no work left. A debt (more than its share taken) is remembered, anything else forgotten."""
        self._weight_sum -= self._weights.pop(tenant)
        if not self._weights:
            self._weight_sum = 0.0  # no drift of rounding from one busy period to the next
        if self._virtual[tenant] <= self._now:
            del self._virtual[tenant]

    def charge(self, tenant: str, amount: float) -> None:
        """Book ``amount`` of service on an active tenant."""
        self._virtual[tenant] += amount / self._weights[tenant]
        self._now += amount / self._weight_sum

    def virtual_time(self, tenant: str) -> float:
        return self._virtual.get(tenant, self._now)
