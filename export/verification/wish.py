"""What the caller wants a bundle to be held against."""

from dataclasses import dataclass
from pathlib import Path

from gaussport.errors import UsageError
from gaussport.export.precision.wish import MNIST

DEFAULT_MAX_DROP = 0.5
"""Percentage points of accuracy that a converted model may lose."""


@dataclass(frozen=True)
class VerifyWish:
    """`checkpoint` (with `config`) or `against`, another bundle, is the reference; `data` names labelled pictures or
    texts: a folder, a table, or `mnist`."""

    checkpoint: Path | None = None
    config: Path | None = None
    against: Path | None = None
    data: str | None = None
    max_drop: float = DEFAULT_MAX_DROP
    model: str | None = None
    """`package.module:factory` for the checkpoint of a module of the caller's own."""

    def check(self) -> None:
        """Raise a UsageError unless the parts fit together and the folder exists."""
        if self.checkpoint is not None and self.against is not None:
            raise UsageError("a bundle is held against one reference: give --checkpoint or --against, not both")
        if self.config is not None and self.checkpoint is None:
            raise UsageError("--config describes a checkpoint, and there is none: give it with --checkpoint")
        if self.model is not None and self.checkpoint is None:
            raise UsageError("--model makes the module of a checkpoint, and there is none: give it with --checkpoint")
        if not 0 <= self.max_drop <= 100:
            raise UsageError(f"--max-drop is {self.max_drop:g} but must be from 0 to 100 percentage points")
        if self.data is not None and self.data != MNIST and not (self.data and Path(self.data).exists()):
            raise UsageError(
                f"--data is {self.data!r}, which is no folder: lay one out as label/file, or give {MNIST}, or a table"
            )
