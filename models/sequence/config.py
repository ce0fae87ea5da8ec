"""The sequence classifier's configuration: a frozen dataclass that travels as JSON in checkpoints and bundles."""

from collections.abc import Mapping
from dataclasses import asdict, dataclass
from typing import Any, Literal

from gaussport.errors import ConfigurationError
from gaussport.models.attention import AttentionConfig, families
from gaussport.models.attention.family import require_count, require_positive
from gaussport.models.config import attention_from_json, build_config
from gaussport.models.text.tokenization import BYTE_PAD

FAMILIES = ("gma", "dot")
"""Those whose attention knows no grid, takes a key_mask and has a causal order."""


@dataclass(frozen=True, kw_only=True)
class SequenceConfig:
    """A pre-norm transformer over tokens around one attention family.

    `pad` is the token, one of `vocabulary`, that fills a row up at the right. `convolution` is the width in tokens of the
    depthwise convolution that opens each block. `pooling` is the mean over all tokens, or the last one. `trained_length` is
    that of the training's rows in tokens: nothing in the model depends on it, the proof does.
    """

    attention: AttentionConfig
    classes: int
    dim: int
    depth: int
    vocabulary: int = BYTE_PAD + 1
    pad: int = BYTE_PAD
    convolution: int = 5
    pooling: Literal["mean", "last"] = "mean"
    trained_length: int = 1024
    mlp_ratio: float = 2.0
    gelu: Literal["exact", "tanh"] = "exact"
    norm_epsilon: float = 1e-5

    def __post_init__(self) -> None:
        require_count(self, "classes", "dim", "depth", "vocabulary", "convolution", "trained_length")
        require_positive(self, "mlp_ratio", "norm_epsilon")
        if self.family not in FAMILIES:
            raise ConfigurationError(
                f"attention.family is {self.family!r}, which mixes a grid: a sequence takes {' or '.join(FAMILIES)}"
            )
        if type(self.pad) is not int or not 0 <= self.pad < self.vocabulary:
            raise ConfigurationError(f"pad is {self.pad!r} but must be one of the vocabulary's {self.vocabulary} tokens")
        if self.convolution < 2 or not (self.causal or self.convolution % 2):
            wanted = "at least 2" if self.causal else "odd and at least 3, as many tokens before as after"
            raise ConfigurationError(f"convolution is {self.convolution} but must be {wanted}")
        for name, known in (("pooling", ("mean", "last")), ("gelu", ("exact", "tanh"))):
            if getattr(self, name) not in known:
                raise ConfigurationError(f"{name} is {getattr(self, name)!r} but must be {' or '.join(map(repr, known))}")
        self.attention.head_width(self.dim)

    @property
    def family(self) -> str:
        """The attention family's name."""
        return next(family.name for family in families().values() if type(self.attention) is family.config)

    @property
    def causal(self) -> bool:
        """Whether a token knows only itself and those before it, so that the model can stream."""
        return bool(getattr(self.attention, "causal", False))

    def to_json(self) -> dict[str, Any]:
        """A JSON object that `from_json` reads back to an equal configuration."""
        document = asdict(self)
        document["attention"] = {"family": self.family, **document["attention"]}
        return document

    @classmethod
    def from_json(cls, document: Mapping[str, Any]) -> "SequenceConfig":
        """The configuration that `to_json` wrote.

        Raises:
            ConfigurationError: a field is missing, unknown or impossible; the message names it.
        """
        config = dict(document, attention=attention_from_json(document.get("attention")))
        built: SequenceConfig = build_config(cls, config)
        return built
