"""The classifier's configuration: a frozen dataclass that travels as JSON in checkpoints and bundles."""

from collections.abc import Mapping
from dataclasses import asdict, dataclass, fields
from typing import Any, Literal

from gaussport.errors import ConfigurationError
from gaussport.models.attention import AttentionConfig, families
from gaussport.models.attention.family import require_count, require_positive


@dataclass(frozen=True, kw_only=True)
class ClassifierConfig:
    """A pre-norm vision transformer around one attention family. Sizes in pixels; image_size is (height, width)."""

    attention: AttentionConfig
    classes: int
    dim: int
    depth: int
    image_size: tuple[int, int] = (224, 224)
    patch: int = 16
    channels: int = 3
    mlp_ratio: float = 2.0
    gelu: Literal["exact", "tanh"] = "exact"
    norm_epsilon: float = 1e-5

    def __post_init__(self) -> None:
        require_count(self, "classes", "dim", "depth", "patch", "channels")
        require_positive(self, "mlp_ratio", "norm_epsilon")
        if any(side < self.patch or side % self.patch for side in self.image_size):
            raise ConfigurationError(
                f"image_size is {list(self.image_size)} but each side must be a multiple of patch, which is {self.patch}"
            )
        if self.gelu not in ("exact", "tanh"):
            raise ConfigurationError(f"gelu is {self.gelu!r} but must be 'exact' or 'tanh'")
        self.attention.head_width(self.dim)

    @property
    def grid(self) -> tuple[int, int]:
        """(H, W) of the token grid, in cells."""
        return self.image_size[0] // self.patch, self.image_size[1] // self.patch

    @property
    def family(self) -> str:
        """The attention family's name."""
        return next(family.name for family in families().values() if type(self.attention) is family.config)

    def to_json(self) -> dict[str, Any]:
        """A JSON object that `from_json` reads back to an equal configuration."""
        document = asdict(self)
        document["image_size"] = list(self.image_size)
        document["attention"] = {"family": self.family, **document["attention"]}
        return document

    @classmethod
    def from_json(cls, document: Mapping[str, Any]) -> "ClassifierConfig":
        """The configuration that `to_json` wrote.

        Raises:
            ConfigurationError: a field is missing, unknown or impossible; the message names it.
        """
        config = dict(document, attention=attention_from_json(document.get("attention")))
        size = config.get("image_size", (224, 224))
        if not isinstance(size, list | tuple) or len(size) != 2 or not all(type(side) is int for side in size):
            raise ConfigurationError(f"image_size is {size!r} but must be two whole numbers, [height, width]")
        config["image_size"] = (size[0], size[1])
        built: ClassifierConfig = build_config(cls, config)
        return built


def attention_from_json(document: object) -> AttentionConfig:
    """The attention's configuration in the object `{"family": …, …}`.

    Raises:
        ConfigurationError: it is no such object, or a field is missing, unknown or impossible.
    """
    if not isinstance(document, Mapping) or document.get("family") not in list(families()):
        raise ConfigurationError(
            f"the configuration's attention is {document!r} but must be an object whose family is one of "
            f"{', '.join(sorted(families()))}"
        )
    options = {name: value for name, value in document.items() if name != "family"}
    config: AttentionConfig = build_config(families()[document["family"]].config, options)
    return config


def build_config(kind: type[Any], values: Mapping[str, Any]) -> Any:
    """The dataclass `kind` with these fields.

    Raises:
        ConfigurationError: a field is missing, unknown or impossible; the message names it.
    """
    known = {field.name for field in fields(kind)}
    unknown = sorted(set(values) - known)
    if unknown:
        raise ConfigurationError(
            f"the configuration has the unknown field {unknown[0]!r}; {kind.__name__} has {sorted(known)}"
        )
    try:
        return kind(**values)
    except TypeError as error:  # a required field is missing
        raise ConfigurationError(f"the configuration is incomplete: {error}") from None
