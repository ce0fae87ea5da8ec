"""Named configurations of sequence classifiers: `<family>-<size>`; `causal` ones stream."""

from dataclasses import replace
from typing import Any

from gaussport.errors import ConfigurationError
from gaussport.models.attention import families
from gaussport.models.sequence.config import FAMILIES, SequenceConfig

SIZES: dict[str, dict[str, Any]] = {
    # What one idle core trains in minutes; the zoo's.
    "manpages": {"dim": 64, "depth": 2, "classes": 8, "trained_length": 256, "heads": 4, "causal": True},
    "manpages-bidirectional": {"dim": 64, "depth": 2, "classes": 8, "trained_length": 256, "heads": 4},
    "bytes-tiny": {"dim": 32, "depth": 2, "classes": 4, "trained_length": 64, "heads": 2},
    "bytes-tiny-causal": {"dim": 32, "depth": 2, "classes": 4, "trained_length": 64, "heads": 2, "causal": True},
}
MIXTURE: dict[str, dict[str, Any]] = {"gma": {"components": 16, "routing_width": 8}, "dot": {}}
"""Of every head: few enough components to look at one by one."""


def sequence_names() -> list[str]:
    """Every preset's name."""
    return [f"{family}-{size}" for family in FAMILIES for size in SIZES]


def sequence_preset(name: str, **changes: Any) -> SequenceConfig:
    """The named configuration, with any field of `SequenceConfig` changed.

    Raises:
        ConfigurationError: no preset has that name, or the changes are impossible.
    """
    if name not in sequence_names():
        raise ConfigurationError(f"there is no preset {name!r} of a sequence; choose one of {', '.join(sequence_names())}")
    family, size = name.split("-", 1)
    values = dict(SIZES[size])
    attention: dict[str, Any] = {key: values.pop(key) for key in ("heads", "causal") if key in values}
    attention |= MIXTURE[family]
    return replace(SequenceConfig(attention=families()[family].config(**attention), **values), **changes)
