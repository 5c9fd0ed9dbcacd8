"""Where the present request comes from, for the audit log: set at the edge, read where something is written down.

A context variable, since an action is called by pages, API and commands alike and need not know which. Outside a request it is empty.
"""

from __future__ import annotations

from contextvars import ContextVar
from dataclasses import dataclass, replace
from typing import Any


@dataclass(frozen=True, kw_only=True, slots=True)
class Origin:
    """``operator_email``: of the operator who acts as somebody else."""

    address: str = ""
    request_id: str = ""
    token_id: str = ""
    operator_email: str = ""


_NOWHERE = Origin()
_current: ContextVar[Origin] = ContextVar("origin", default=_NOWHERE)


def current() -> Origin:
    return _current.get()


def begin(*, address: str, request_id: str) -> None:
    """A new request: whatever an earlier one in this context left is forgotten."""
    _current.set(Origin(address=address, request_id=request_id))


def add(**known: Any) -> None:
    """What became known later, such as the token."""
    _current.set(replace(_current.get(), **known))


def end() -> None:
    _current.set(_NOWHERE)
