"""Which jobs the list shows, as it stands in the address: what is shared is what is seen."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import Any
from urllib.parse import urlencode

from django.db.models import Q
from django.http import HttpRequest

from portal.jobs.models import OPEN_STATES, State
from portal.query import choice, text
from tenants.models import Tenant

SHOWS = {"": "All", "open": "Open", "ended": "Ended", "archived": "Archived"}
_ENDED = (State.SUCCEEDED, State.FAILED, State.CANCELLED)
_NARROWING = {"open": OPEN_STATES, "ended": _ENDED}


@dataclass(frozen=True, kw_only=True, slots=True)
class JobFilter:
    """``show``: one of ``SHOWS``; ``state``: one of the states; ``q``: in names and ids; the others by public id, name and e-mail."""

    show: str = ""
    state: str = ""
    q: str = ""
    dataset: str = ""
    model: str = ""
    owner: str = ""

    @classmethod
    def of(cls, request: HttpRequest) -> JobFilter:
        given = {name: text(request, name) for name in cls.__slots__}
        given |= {"show": choice(request, "show", SHOWS, noun="list of jobs"), "state": choice(request, "state", State.values)}
        return cls(**given)

    def jobs(self, tenant: Tenant) -> Any:
        jobs = tenant.jobs.filter(archived_at__isnull=self.show != "archived")
        if self.show in _NARROWING:
            jobs = jobs.filter(state__in=_NARROWING[self.show])
        if self.q:
            jobs = jobs.filter(Q(name__icontains=self.q) | Q(public_id=self.q))
        wanted = {"state": self.state, "dataset__public_id": self.dataset, "spec__base_model": self.model, "created_by__email": self.owner}
        return jobs.filter(**{name: value for name, value in wanted.items() if value})

    def address(self, **changes: Any) -> str:
        return urlencode({name: value for name, value in {**asdict(self), **changes}.items() if value})

    @property
    def narrows(self) -> bool:
        return any((self.state, self.q, self.dataset, self.model, self.owner))
