"""Telling open connections to look again at whether they may stay open: at once, not at their next look of their own.

A hint only. A connection that misses it still looks by itself once a minute; one that gets it for nothing looks once too often.
"""

from __future__ import annotations

import structlog
from asgiref.sync import async_to_sync
from channels.layers import get_channel_layer
from django.db import transaction

log = structlog.get_logger(__name__)


def group_of(user_pk: int) -> str:
    """The group that every open connection of this person listens to."""
    return f"person.{user_pk}"


def look_again(*user_pks: int) -> None:
    """After the commit, every open connection of these people checks its right to be open. A channel layer that is down costs a minute."""
    transaction.on_commit(lambda: _send(user_pks), robust=True)


def _send(user_pks: tuple[int, ...]) -> None:
    layer = get_channel_layer()
    for pk in user_pks:
        try:
            async_to_sync(layer.group_send)(group_of(pk), {"type": "look.again"})
        except Exception:  # whatever the channel layer's server does, what was decided is stored
            log.warning("look_again_unsent", exc_info=True)
