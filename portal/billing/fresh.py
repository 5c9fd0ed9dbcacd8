"""Write an object of Stripe's down as it stands now, whatever order its notices come in and however many are handled at once.

It is fetched, and what was fetched is applied only if nobody else has applied it meanwhile; else it is fetched again. So a state that was
read earlier never overwrites one that was read later.
"""

from __future__ import annotations

from collections.abc import Callable
from datetime import datetime
from typing import TypeVar

from django.db import transaction
from django.db.models import F

from portal.billing.models import StripeMark
from portal.billing.stripe_records import Unreachable

TRIES = 5
_Thing = TypeVar("_Thing")


def write(object_id: str, fetch: Callable[[], _Thing], apply: Callable[[_Thing], None], now: datetime) -> None:
    """``apply`` runs in one transaction. Raises what ``fetch`` and ``apply`` raise; ``Unreachable`` when others are always quicker."""
    for _ in range(TRIES):
        mark, _made = StripeMark.objects.get_or_create(object_id=object_id)
        found = fetch()
        with transaction.atomic():
            if StripeMark.objects.filter(pk=mark.pk, seen=mark.seen).update(seen=F("seen") + 1, at=now):
                apply(found)
                return
    raise Unreachable(f"{object_id} is being written by others")
