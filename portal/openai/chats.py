"""Chats: asked for, answered by the engine, paid for. Whatever way one ends, it is settled once.

What an answer may cost at most is held before the engine hears of it, and released when it is settled.

An answer that came whole is billed by its usage; one whose client left, by what had come until then; one that the platform failed, not.
One whose web process died is the platform's failure too: the sweeper ends it.
"""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import AsyncExitStack
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Any

import structlog
from django.db import transaction
from django.utils import timezone
from rest_framework.exceptions import ErrorDetail, Throttled

from portal import gateway
from portal.billing import spending
from portal.billing.ledger import Line
from portal.billing.models import Kind, SourceType
from portal.billing.spending import Spender
from portal.jobs import engines
from portal.openai import names
from portal.openai.chat_request import ChatRequest
from portal.openai.models import Chat
from tenants.access import require
from tenants.models import Role, Tenant, User

log = structlog.get_logger(__name__)

LASTS = timedelta(minutes=15)  # longer than any answer: the engine ends one after 10 minutes at the latest


class TooManyChats(Throttled):
    """The tenant has as many chats under way as it may."""

    default_code = "too_many_chats"

    def __init__(self, message: str):
        super().__init__()
        self.detail = ErrorDetail(message, self.default_code)


@dataclass(frozen=True, kw_only=True, slots=True)
class Asked:
    """A chat that may begin."""

    chat: Chat
    engine: str  # the configured name of who answers
    model: str
    request: ChatRequest

    @property
    def order(self) -> dict[str, Any]:
        job = self.chat.job
        whose = {"tenant": self.chat.tenant.public_id, "job": job and job.public_id, "version": self.chat.version}
        return {**self.request.order, **whose}


def ask(tenant: Tenant, user: User, request: ChatRequest, now: datetime) -> Asked:
    """Raises ``names.NoModel``, ``Invalid``, ``Forbidden`` for viewers, and the refusals of ``spending.hold`` for who cannot pay."""
    require(tenant, user, Role.MEMBER)
    served = names.resolve(tenant, request.model, now)
    engine = engines.name_of(served.job) if served.job else engines.name_for(served.info.name)
    with transaction.atomic():
        chat = Chat.objects.create(
            tenant=tenant, base_model=served.info.name, job=served.job, version=served.version, asked_by=user, created_at=now
        )
        spending.hold(_spender(chat), _most(served, request), now, lasts=LASTS)
    return Asked(chat=chat, engine=engine, model=served.name, request=request)


class Answer:
    """The engine's lines of a chat. ``async with`` begins it (raising the gateway's errors) and ends it; ``spent``: what it used so far."""

    def __init__(self, asked: Asked):
        self._asked = asked
        self._stack = AsyncExitStack()
        self.spent = Spent()

    async def __aenter__(self) -> Answer:
        engine = gateway.async_engine(self._asked.engine)
        self._stack.push_async_callback(engine.close)
        try:
            self._lines = await self._stack.enter_async_context(engine.generate(self._asked.order))
        except gateway.EngineRefused as refused:
            await self._stack.aclose()
            if refused.status == 409:
                raise TooManyChats(str(refused)) from refused
            raise
        except BaseException:
            await self._stack.aclose()
            raise
        return self

    async def __aexit__(self, *_: object) -> None:
        await self._stack.aclose()

    async def lines(self) -> AsyncIterator[dict[str, Any]]:
        """Raises ``gateway.EngineDown`` where the stream breaks off before its last line."""
        async for line in self._lines:
            self.spent.take(line)
            yield line
        if not self.spent.over:
            raise gateway.EngineDown("the engine's answer broke off")


class Spent:
    """What a chat has used, by the lines that have come."""

    def __init__(self) -> None:
        self.prompt_tokens = self.cached_tokens = self.completion_tokens = 0
        self.whole = self.failed = False

    def take(self, line: dict[str, Any]) -> None:
        if line["type"] in ("begin", "usage"):
            self.prompt_tokens, self.cached_tokens = line["prompt_tokens"], line["cached_tokens"]
        if line["type"] == "delta":
            self.completion_tokens += line["tokens"]
        if line["type"] == "usage":
            self.completion_tokens, self.whole = line["completion_tokens"], True
        if line["type"] == "error":
            self.failed = True

    @property
    def over(self) -> bool:
        return self.whole or self.failed

    def state(self, *, left: bool) -> str:
        if self.whole:
            return Chat.State.DONE
        return Chat.State.LEFT if left and not self.failed else Chat.State.FAILED


def settle(chat: Chat, spent: Spent, now: datetime, *, left: bool = False) -> None:
    """Write down how ``chat`` ended and bill it; done twice, it is done once. ``left``: its client went away."""
    state = spent.state(left=left)
    counts = {name: getattr(spent, name) for name in ("prompt_tokens", "cached_tokens", "completion_tokens")}
    with transaction.atomic():
        if not Chat.objects.filter(pk=chat.pk, state=Chat.State.OPEN).update(state=state, ended_at=now, **counts):
            return
        spending.bill(_spender(chat), _lines(chat, spent, state, now), now)
    log.info("chat_ended", chat=chat.public_id, state=state, **counts)


def sweep(now: datetime) -> int:
    """End the chats that nobody answers any more, since their web process died; how many."""
    left = list(Chat.objects.select_related("tenant", "job").filter(state=Chat.State.OPEN, created_at__lt=now - LASTS)[:1000])
    for chat in left:
        log.warning("chat_abandoned", chat=chat.public_id)
        settle(chat, Spent(), now)
    return len(left)


def _spender(chat: Chat) -> Spender:
    return Spender(tenant=chat.tenant, source_type=SourceType.CHAT, source=chat.public_id, model=chat.base_model, words="this answer")


def _lines(chat: Chat, spent: Spent, state: str, now: datetime) -> list[Line]:
    """In the ledger a chat is a row of what was asked: the model, or the job's version."""
    reason = "not billed: the platform failed this answer" if state == Chat.State.FAILED else ""
    cached = min(spent.cached_tokens, spent.prompt_tokens)
    tokens = {Kind.PREFILL: spent.prompt_tokens - cached, Kind.CACHED_PREFILL: cached, Kind.SAMPLED: spent.completion_tokens}
    return spending.used(_spender(chat), tokens, now, step=chat.pk, source=chat.source, reason=reason)


def _most(served: names.Served, request: ChatRequest) -> dict[str, int]:
    """Kind → the tokens that the answer can take."""
    context = served.info.max_context_tokens
    sampled = request.n * min(request.most_new_tokens or context, context)
    return {Kind.PREFILL: min(request.characters, context), Kind.SAMPLED: sampled}


def settled_now(chat: Chat, spent: Spent, *, left: bool = False) -> None:
    settle(chat, spent, timezone.now(), left=left)
