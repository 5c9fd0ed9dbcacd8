"""What things cost, at any moment: the price list read once, and asked often."""

from __future__ import annotations

from collections import defaultdict
from dataclasses import dataclass
from datetime import datetime

from portal.billing import setup
from portal.billing.ledger import price_of
from portal.billing.models import Kind, Price


@dataclass(frozen=True, kw_only=True, slots=True)
class PriceBook:
    """(model, kind) → [(effective from, micro-units for a million)], the newest first. Model "" is any without a price of its own."""

    rows: dict[tuple[str, str], list[tuple[datetime, int]]]

    @classmethod
    def read(cls) -> PriceBook:
        if not Price.objects.filter(model="").exists():
            setup.default_prices()
        rows: dict[tuple[str, str], list[tuple[datetime, int]]] = defaultdict(list)
        for price in Price.objects.order_by("-effective_from"):
            rows[price.model, price.kind].append((price.effective_from, price.micros_per_million))
        return cls(rows=dict(rows))

    def price(self, kind: str, model: str, at: datetime) -> int:
        """Micro-units for a million. Raises ``LookupError`` for a kind without any price: nothing is given away in silence."""
        for wanted in (model, ""):
            for since, micros in self.rows.get((wanted, kind), ()):
                if since <= at:
                    return micros
        raise LookupError(f"there is no price for {kind} tokens of {model} at {at:%Y-%m-%d %H:%M}; add one to the price list")

    def most(self, tokens: dict[str, int], model: str, at: datetime) -> int:
        """What ``tokens`` by kind cost at most. Prefill may turn out cached, whichever of both is dearer."""
        dearer = max(self.price(Kind.PREFILL, model, at), self.price(str(Kind.CACHED_PREFILL), model, at))
        return sum(
            price_of(count, dearer if kind == Kind.PREFILL else self.price(kind, model, at)) for kind, count in tokens.items() if count
        )


@dataclass(frozen=True, kw_only=True, slots=True)
class Listed:
    """A price as the list shows it, in micro-units for a million; None: none yet. ``model`` "": any without a price of its own."""

    kind: str
    model: str
    micros: int | None
    coming: list[tuple[datetime, int]]


def current(now: datetime) -> list[Listed]:
    """What holds now, prices for all models first, and what is known to come."""
    listed = []
    for (model, kind), rows in PriceBook.read().rows.items():
        holding = next((micros for since, micros in rows if since <= now), None)
        coming = [(since, micros) for since, micros in rows[::-1] if since > now]
        if holding is not None or coming:
            listed.append(Listed(kind=kind, model=model, micros=holding, coming=coming))
    order = {kind: place for place, kind in enumerate(Kind.values)}
    return sorted(listed, key=lambda price: (price.model, order[price.kind]))
