"""What failed by the platform's fault is tried again; what a tenant did, or asked for, is not."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import TypeVar

from engine.ports import PortError

Answer = TypeVar("Answer")


async def stubbornly(
    call: Callable[[], Awaitable[Answer]],
    *,
    tries: int,
    on_failure: Callable[[PortError], None],
    final: tuple[type[PortError], ...] = (),
) -> Answer:
    """The first answer of at most ``tries`` calls, each begun when the one before has failed.

    ``on_failure`` hears of each failure that is followed by another try. Raises the last failure, and at once one that is not the
    platform's or is of a ``final`` kind.
    """
    for _ in range(tries - 1):
        try:
            return await call()
        except PortError as error:
            if error.attribution != "platform" or isinstance(error, final):
                raise
            on_failure(error)
    return await call()
