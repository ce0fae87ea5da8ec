"""One answer of the doctor."""

from dataclasses import dataclass
from typing import Literal

State = Literal["ok", "no", "note"]


@dataclass(frozen=True)
class Finding:
    """`ok` works, `no` does not and says why, `note` is a fact. `part` groups findings in the table."""

    part: str
    subject: str
    state: State
    text: str
