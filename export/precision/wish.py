"""What the caller wishes of a model's precision, checked before any work and without torch."""

from dataclasses import dataclass
from pathlib import Path

from gaussport.errors import UsageError
from gaussport.export.calibration.thresholds import METHODS, Method

PRECISIONS = ("fp32", "fp16", "bf16", "int8")
MNIST = "mnist"
DEFAULT_PICTURES = 512
"""Pictures that a calibration runs, at most."""


@dataclass(frozen=True)
class PrecisionWish:
    """`keep_fp32` names layers as PyTorch does; `calibration_data` and `data` are a folder, `mnist`, or a table of
    texts."""

    precision: str = "fp32"
    keep_fp32: tuple[str, ...] = ()
    calibration_data: str | None = None
    calibration_method: Method = "percentile"
    data: str | None = None
    """Labelled pictures or texts on which the converted model is compared with the checkpoint."""
    max_drop: float | None = None
    """How many percentage points of accuracy on `data` may be lost."""

    def check(self) -> None:
        """Raise a UsageError unless the parts fit together and the folders exist."""
        if self.precision not in PRECISIONS:
            raise UsageError(f"there is no precision {self.precision!r}: choose one of {', '.join(PRECISIONS)}")
        if self.calibration_method not in METHODS:
            raise UsageError(f"there is no calibration {self.calibration_method!r}: choose one of {', '.join(METHODS)}")
        if self.precision == "int8" and self.calibration_data is None:
            raise UsageError("int8 needs pictures or texts to calibrate with: give a folder of them with --calibration-data")
        if self.precision != "int8" and self.calibration_data is not None:
            raise UsageError(f"{self.precision} needs no calibration: leave --calibration-data away, or choose int8")
        if self.precision == "fp32" and self.keep_fp32:
            raise UsageError("--keep-fp32 names layers that stay float32 in a narrower model: choose --precision as well")
        if self.max_drop is not None and self.data is None:
            raise UsageError("--max-drop needs labelled pictures or texts to measure on: give a folder of them with --data")
        if self.max_drop is not None and not 0 <= self.max_drop <= 100:
            raise UsageError(f"--max-drop is {self.max_drop} but must be from 0 to 100 percentage points")
        for option, source in (("--calibration-data", self.calibration_data), ("--data", self.data)):
            if source is not None and source != MNIST and not (source and Path(source).exists()):
                raise UsageError(f"{option} is {source!r}, which is no folder: give a folder of pictures, or {MNIST}")
