"""What a checkpoint is once read, and what a file held before anyone judged it."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Generic, TypeVar

from torch import Tensor

from gaussport.models.config import ClassifierConfig
from gaussport.models.image.preprocess import Preprocessing
from gaussport.models.sequence.config import SequenceConfig
from gaussport.models.text.tokenization import Tokenization

ConfigT = TypeVar("ConfigT", ClassifierConfig, SequenceConfig)
FrontT = TypeVar("FrontT", Preprocessing, Tokenization)


@dataclass(frozen=True)
class TrainedWeights(Generic[ConfigT, FrontT]):
    """A trained classifier, whole: `build_classifier` needs nothing else.

    `state_dict` is float32 on the CPU; tensors that are one in the file are one here. `preprocessing` is how pictures become
    pixels, or text tokens. `weights` says which set of the file it is: `raw` (the trained parameters as they are) or `ema`
    (their moving average), and `weights_key` where in the file it lies. `metrics` are numbers by name, fractions for
    accuracies. `source` is the file's name and `sha256` its hash; both are empty until the checkpoint has been in a file.
    `stored_dtypes` are those of the file, before the cast.
    """

    config: ConfigT
    state_dict: dict[str, Tensor]
    preprocessing: FrontT
    labels: tuple[str, ...]
    metrics: dict[str, float] = field(default_factory=dict)
    weights: str = "raw"
    weights_key: str = ""
    source: str = ""
    sha256: str = ""
    renamed: tuple[str, ...] = ()
    """The rules `OLD=NEW` by which names were changed."""
    stored_dtypes: tuple[str, ...] = ("float32",)
    assumed: tuple[str, ...] = ()
    """What neither the file, nor its shapes, nor anyone else stated, so that a default stands in: `preprocessing`,
    `labels`, or a field of the configuration such as `gelu`."""


@dataclass(frozen=True)
class Checkpoint(TrainedWeights[ClassifierConfig, Preprocessing]):
    """A classifier of pictures."""

    resized_from: tuple[int, int] | None = None
    """The image_size of the stored weights when `pos_embed` was resized to another, else None."""


@dataclass(frozen=True)
class SequenceCheckpoint(TrainedWeights[SequenceConfig, Tokenization]):
    """A classifier of sequences."""


AnyCheckpoint = Checkpoint | SequenceCheckpoint


@dataclass(frozen=True)
class Stored:
    """A file's content as the format gives it: nested mappings with tensors and plain values as leaves.

    `description` is what is known to stand beside the weights: `config`, `preprocessing`, `labels`, `metrics`.
    `format` says in words what the file is, `files` how many it has, `total_bytes` what they weigh.
    """

    content: Mapping[str, Any]
    description: Mapping[str, Any]
    format: str
    total_bytes: int
    flax: bool = False
    """Written by the JAX twin: kernels are transposed, and its norms and GELU have other defaults."""
    ties: Mapping[str, str] = field(default_factory=dict)
    """Names that the file left out because they are the same tensor as another name."""
