"""Weighted fair share between tenants: start-time fair queueing with many servers (Goyal, Vin and Cheng 1996; Jin, Chase and Kaur 2004).

A tenant's virtual time grows by tokens / weight with what it was served; who has the least goes first. A step is charged with an estimate
when it starts and corrected by its real tokens when they are known; an attempt that was lost stays charged with the estimate, since it
took the place of others.

**How long a small job waits.** The order is ``fair``, slots are held per ``step`` and KV per ``rollout``. A job of a tenant that has
nothing else open and owes nothing starts its first rollout within

    W  =  ⌈(N + 1) / R⌉ · L

of its submission, and commits its first step at most one L later. N: other tenants with open jobs. L: the longest step, from the start of
its rollout to its commit, the wait for the trainer included (at most R_max + S · T_max for rollouts of at most R_max and trainings of at
most T_max on S slots). R: how many steps can run at once, the least of the adapter slots S, ``max_rollouts``, the adaptive limit, and how
many of the largest footprints fit the KV budget; 1 at least. How many jobs the others have, and how long these are, is not in it.

Because: the system's time ``now`` is the largest served time at which a step started. (1) Whoever waits has a key of at least ``now``:
the one that starts has the least key of all who wait, and whoever begins to wait, or is corrected downwards, is lifted to ``now``
(``catch_up``). (2) The newcomer's key is ``now`` exactly, so only equal keys come before it, and of equals the one that has waited longest.
(3) A step moves its tenant behind the newcomer for good, so each other tenant starts one step before it at most. (4) Whenever fewer than
R steps run, the first in line starts: it is never overtaken for want of room. So of the N + 1 starts R at a time happen every L.

Steps that are repeated alone after losses (see ``core.pipeline``) hold the line up and are not in L; a tenant at its running cap waits for
its own jobs.
"""

from __future__ import annotations

Key = tuple[float, int]
LEARNING = 0.2  # weight of the newest step in the mean of served to estimated tokens


class FairShare:
    """The account of who was served how much. Amounts are tokens; sizes are any estimate of a whole step that is proportional to them."""

    def __init__(self) -> None:
        self._now = 0.0
        self._served: dict[str, float] = {}  # virtual time: tokens / weight of what has ended
        self._running: dict[str, float] = {}  # tokens expected of the steps under way
        self._weights: dict[str, float] = {}
        self._since: dict[str, int] = {}  # among equals: who was served, or came, longest ago
        self._turns = 0
        self._tokens_per_size = 1.0
        self._has_learned = False

    def join(self, tenant: str, weight: float) -> None:
        """``tenant`` has work from now on; joining again only changes its weight."""
        if tenant not in self._weights:
            self._served[tenant] = max(self._served.get(tenant, 0.0), self._now)
            self._running[tenant] = 0.0
            self._since[tenant] = self._next_turn()
        self._weights[tenant] = weight

    def leave(self, tenant: str) -> None:
        """``tenant`` has no work left. A debt (more than its share taken) is remembered, anything else forgotten."""
        del self._weights[tenant], self._running[tenant], self._since[tenant]
        if self._served[tenant] <= self._now:
            del self._served[tenant]

    def catch_up(self, tenant: str) -> bool:
        """Idleness earns no credit, nor does an estimate that was too high: nobody who waits is behind ``now``. Says whether it was."""
        least = self._now - self._running[tenant] / self._weights[tenant]
        was_behind = self._served[tenant] < least
        if was_behind:
            self._served[tenant] = least
        return was_behind

    def started(self, tenant: str, tokens: float) -> None:
        """A step that is expected to take ``tokens`` has begun."""
        self._now = max(self._now, self._served[tenant])
        self._running[tenant] += tokens
        self._since[tenant] = self._next_turn()

    def ended(self, tenant: str, expected: float, tokens: float) -> None:
        """It took ``tokens``."""
        self._running[tenant] = max(0.0, self._running[tenant] - expected)  # no drift of rounding below nothing
        self._served[tenant] += tokens / self._weights[tenant]
        self.catch_up(tenant)

    def key(self, tenant: str) -> Key:
        """The least goes first."""
        return self._served[tenant] + self._running[tenant] / self._weights[tenant], self._since[tenant]

    def expected(self, size: float) -> float:
        """Tokens of the first step of a job of ``size``, by what others' steps took of theirs."""
        return size * self._tokens_per_size

    def learn(self, size: float, tokens: float) -> None:
        if size <= 0:
            return
        weight = LEARNING if self._has_learned else 1.0
        self._tokens_per_size += weight * (tokens / size - self._tokens_per_size)
        self._has_learned = True

    def accounts(self) -> dict[str, tuple[float, float]]:
        """By tenant with work: (weight, the virtual time that its turn is ordered by). For people."""
        return {tenant: (weight, self.key(tenant)[0]) for tenant, weight in self._weights.items()}

    def running(self, tenant: str) -> float:
        """Tokens expected of the steps that ``tenant`` has under way."""
        return self._running.get(tenant, 0.0)

    def _next_turn(self) -> int:
        self._turns += 1
        return self._turns
