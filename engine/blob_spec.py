"""How a spec names a file of the blob store."""

from __future__ import annotations

from typing import Annotated

from pydantic import Field

from engine.strict import Strict


class BlobRef(Strict):
    """An immutable file in the blob store, named by its content."""

    sha256: Annotated[str, Field(pattern=r"^[0-9a-f]{64}$")]
    bytes: Annotated[int, Field(ge=0)]
