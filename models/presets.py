"""Named configurations: `<family>-<size>`, every family in every size."""

from dataclasses import replace
from typing import Any

from gaussport.errors import ConfigurationError
from gaussport.models.attention import families
from gaussport.models.config import ClassifierConfig

SIZES: dict[str, dict[str, Any]] = {
    # Published on ImageNet-1k: SSOG and its dot-product twin.
    "d256": {"dim": 256, "depth": 6, "classes": 1000},
    "d384": {"dim": 384, "depth": 12, "classes": 1000},
    # Small ones that two cores can train in minutes.
    "mnist": {"dim": 64, "depth": 4, "classes": 10, "image_size": (28, 28), "patch": 4, "channels": 1},
    "tiny": {"dim": 32, "depth": 2, "classes": 10, "image_size": (32, 32), "patch": 8, "channels": 3},
}
HEADS = {"d256": 4, "d384": 6, "mnist": 4, "tiny": 2}


def names() -> list[str]:
    """Every preset's name."""
    return [f"{family}-{size}" for family in families() for size in SIZES]


def preset(name: str, **changes: Any) -> ClassifierConfig:
    """The named configuration, with any field of `ClassifierConfig` changed.

    Raises:
        ConfigurationError: no preset has that name, or the changes are impossible.
    """
    if name not in names():
        raise ConfigurationError(f"there is no preset {name!r}; choose one of {', '.join(names())}")
    family, size = name.split("-", 1)
    config = ClassifierConfig(attention=families()[family].config(heads=HEADS[size]), **SIZES[size])
    return replace(config, **changes)
