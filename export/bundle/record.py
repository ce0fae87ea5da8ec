"""What every part of `bundle.json` is: an immutable record with exactly the fields that it names."""

from typing import Annotated

from pydantic import BaseModel, ConfigDict, Field

Sha256 = Annotated[str, Field(pattern=r"^[0-9a-f]{64}$")]


class Record(BaseModel):
    """A part of the manifest: frozen, and unknown fields are refused."""

    model_config = ConfigDict(frozen=True, extra="forbid", protected_namespaces=())
