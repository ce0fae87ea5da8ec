"""What a checkpoint is once read, and what a file held before anyone judged it."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from torch import Tensor

from gaussport.models.config import ClassifierConfig
from gaussport.models.image.preprocess import Preprocessing


@dataclass(frozen=True)
class Checkpoint:
    """A trained classifier, whole: `build_classifier` needs nothing else.

    `state_dict` is float32 on the CPU. `weights` says which set of the file it is ("raw": the trained parameters as they
    are). `metrics` are numbers by name, fractions for accuracies. `source` is the file's name and `sha256` its hash; both
    are empty until the checkpoint has been in a file. `stored_dtypes` are those of the file, before the cast.
    """

    config: ClassifierConfig
    state_dict: dict[str, Tensor]
    preprocessing: Preprocessing
    labels: tuple[str, ...]
    metrics: dict[str, float] = field(default_factory=dict)
    weights: str = "raw"
    source: str = ""
    sha256: str = ""
    stored_dtypes: tuple[str, ...] = ("float32",)
    assumed: tuple[str, ...] = ()
    """Which of `preprocessing` and `labels` neither the file nor anyone else stated, so that a default stands in."""


@dataclass(frozen=True)
class Stored:
    """A file's named tensors, and the `config`, `preprocessing`, `labels` and `metrics` beside them where it has them."""

    tensors: Mapping[str, Tensor]
    description: Mapping[str, Any]
