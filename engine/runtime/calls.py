"""One way to call an actor: a deadline on every call, and every failure as the ``PortError`` that the manager understands."""

from __future__ import annotations

import asyncio
import logging
from typing import Any

from ray.exceptions import ActorDiedError, RayActorError, RayError, RayTaskError

from engine.ports import PortError

logger = logging.getLogger(__name__)


class Died(PortError):
    """The process behind the call is gone; Ray is starting it anew."""


class Gone(PortError):
    """The actor failed in its creation, or was removed: Ray will not start it again."""


class Raised(PortError):
    """The call ended in an exception that is no refusal: a bug, or a process group that lost a member."""


class Overdue(PortError):
    """The call has not answered within its deadline. The process may be stuck."""


async def answer(ref: Any, *, deadline_seconds: float | None, what: str) -> Any:
    """The value of a Ray call (no deadline: None). Raises ``Died``, ``Gone``, ``Overdue``, ``Raised`` or the actor's own ``PortError``."""
    try:
        # Not asyncio.wait_for: before 3.12 it can swallow a cancellation that comes together with the answer.
        async with asyncio.timeout(deadline_seconds):
            return await ref
    except TimeoutError:
        raise Overdue(f"{what} did not answer within {deadline_seconds:g} s") from None
    except RayTaskError as error:
        raise _from_task(error, what) from error
    except ActorDiedError as error:
        raise Gone(f"{what}: {error}") from error
    except RayActorError as error:
        raise Died(f"{what}: its process died") from error
    except RayError as error:
        raise PortError(f"{what}: {type(error).__name__}: {error}") from error


def _from_task(error: RayTaskError, what: str) -> PortError:
    cause = error.cause
    if isinstance(cause, PortError):
        return cause
    logger.error("%s raised\n%s", what, error)
    return Raised(f"{what}: {type(cause).__name__}: {cause}")
