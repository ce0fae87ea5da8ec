"""What a checkpoint may be one of: a classifier of pictures or of sequences, told by the parameter that meets the data."""

from collections.abc import Collection, Mapping
from dataclasses import dataclass, field, fields
from typing import Any

from gaussport.models.classifier import Classifier
from gaussport.models.config import ClassifierConfig
from gaussport.models.sequence import SequenceClassifier, SequenceConfig

Config = ClassifierConfig | SequenceConfig


@dataclass(frozen=True)
class Kind:
    """A kind of classifier. `defaults` are the fields that no shape tells and that need no statement."""

    name: str
    config: type[ClassifierConfig] | type[SequenceConfig]
    embedding: str
    defaults: Mapping[str, Any] = field(default_factory=dict)

    @property
    def fields(self) -> tuple[str, ...]:
        """The configuration's fields beside the attention's, in its order."""
        return tuple(f.name for f in fields(self.config) if f.name != "attention")


_COMMON = {"gelu": "exact", "norm_epsilon": 1e-5}
PICTURES = Kind("pictures", ClassifierConfig, "patch_embed.weight", _COMMON)
SEQUENCES = Kind(
    "sequences",
    SequenceConfig,
    "token_embed.weight",
    {"pad": SequenceConfig.pad, "pooling": "mean", "trained_length": SequenceConfig.trained_length, **_COMMON},
)
KINDS = (PICTURES, SEQUENCES)


def kind_of(names: Collection[str]) -> Kind:
    """The kind of classifier whose parameters have these names; pictures when nothing tells."""
    return next((kind for kind in KINDS if kind.embedding in names), PICTURES)


def module_of(config: Config) -> Classifier | SequenceClassifier:
    """The classifier that is so configured, with new weights."""
    return SequenceClassifier(config) if isinstance(config, SequenceConfig) else Classifier(config)
