"""The fake as a process of its own, for clients that are killed: ``python -m tests.fake_stripe.process FILE SEED``.

``FILE`` are the numbers of ``WORLD``: the time, whether Stripe is down, and how many of a thousand requests meet a fault. Its address
is the first line of its output; it ends when its input does. ``GET /told`` says what each tenant's customer has used, by meter.
"""

from __future__ import annotations

import random
import sys
from collections import Counter
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from tests.fake_stripe.server import FAULTS, Answer, FakeStripe
from tests.support.shared_numbers import SharedNumbers

WORLD = ("now", "down", "faults_per_mille", "released", "beats")


class Apart(FakeStripe):
    def __init__(self, world: SharedNumbers, chance: random.Random):
        super().__init__(lambda: datetime.fromtimestamp(world["now"], UTC))
        self._world, self._chance = world, chance
        self.fault = self._perhaps

    def handle(self, method: str, path: str, values: dict[str, Any], key: str, idempotency_key: str | None) -> Answer | None:
        if path == "/told":
            return 200, self._told()
        self.down = bool(self._world["down"])
        return super().handle(method, path, values, key, idempotency_key)

    def _perhaps(self) -> str | None:
        return self._chance.choice(FAULTS) if self._chance.randrange(1000) < self._world["faults_per_mille"] else None

    def _told(self) -> dict[str, Any]:
        tenants = {customer["id"]: customer["metadata"]["tenant"] for customer in self.of("customer")}
        told: dict[str, Counter[str]] = {tenant: Counter() for tenant in tenants.values()}
        for event in self.usage:
            told[tenants[event["payload"]["stripe_customer_id"]]][event["event_name"]] += int(event["payload"]["value"])
        return {"told": told, "requests": len(self.calls)}


def main(path: str, seed: str) -> None:
    fake = Apart(SharedNumbers(Path(path), WORLD), random.Random(int(seed)))
    print(fake.url, flush=True)
    sys.stdin.read()
    fake.close()


if __name__ == "__main__":
    main(*sys.argv[1:])
