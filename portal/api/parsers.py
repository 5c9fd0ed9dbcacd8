"""JSON bodies, with the bounds that a stranger's body needs: size, depth, no NaN, no lone surrogates, no NUL (PostgreSQL stores none), and
no key twice in one object, of which one would be passed over in silence.
"""

from __future__ import annotations

import json
from typing import Any, BinaryIO

import msgspec
from rest_framework.exceptions import APIException, ParseError, ValidationError
from rest_framework.parsers import BaseParser

from portal.escapes import ADVICE, lone_surrogate
from portal.json_keys import GivenTwice, once_each

MAX_BODY_BYTES = 1024 * 1024
_decode = msgspec.json.Decoder().decode


class TooLarge(APIException):
    status_code = 413
    default_detail = f"A JSON body has at most {MAX_BODY_BYTES:,} bytes; files go to /datasets/ as multipart forms."
    default_code = "too_large"


class JSONParser(BaseParser):
    media_type = "application/json"

    def parse(self, stream: BinaryIO, media_type: str | None = None, parser_context: Any = None) -> Any:
        body = stream.read(MAX_BODY_BYTES + 1)
        if len(body) > MAX_BODY_BYTES:
            raise TooLarge
        try:
            value = _decode(body)
        except msgspec.MsgspecError as error:
            if (lone := lone_surrogate(body)) is not None:
                raise ParseError(f"The body is no JSON: half a surrogate pair at byte {lone}; {ADVICE}.") from None
            raise ParseError(f"The body is no JSON: {error}") from None
        except RecursionError:
            raise ParseError("The body is nested too deeply.") from None
        if b"\\u0000" in body and _has_nul(value):
            raise ParseError("The body contains a NUL character (\\u0000).")
        _check_keys(body)
        return value


def _check_keys(body: bytes) -> None:
    """``body`` is JSON. The quick decoder keeps the last of two, so the other one looks."""
    try:
        json.loads(body.decode(), object_pairs_hook=once_each)
    except GivenTwice as twice:
        raise ValidationError({twice.key[:100]: ["stands twice in one object of the body; keep one of them"]}) from None
    except RecursionError:
        raise ParseError("The body is nested too deeply.") from None


def _has_nul(value: Any) -> bool:
    if isinstance(value, str):
        return "\x00" in value
    if isinstance(value, dict):
        return any("\x00" in key or _has_nul(inner) for key, inner in value.items())
    return isinstance(value, list) and any(map(_has_nul, value))
