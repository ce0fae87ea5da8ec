"""What an attention family is to the classifier: a configuration, and a module made from it for a token grid."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, Protocol, runtime_checkable

from torch import Tensor, nn

from gaussport.errors import ConfigurationError


@dataclass(frozen=True, kw_only=True)
class AttentionConfig:
    """What every family shares. `heads` is P of OPS.md."""

    heads: int

    def __post_init__(self) -> None:
        require_count(self, "heads")

    def head_width(self, dim: int) -> int:
        """D, the width of each head's values.

        Raises:
            ConfigurationError: heads does not divide dim.
        """
        if dim % self.heads:
            raise ConfigurationError(f"heads is {self.heads} but must divide dim, which is {dim}")
        return dim // self.heads


@dataclass(frozen=True)
class Family:
    """A family's name, its configuration class, and how to build its module: `build(config, dim, grid)` gives a module
    from [B, N, dim] to [B, N, dim], where grid is (H, W) and N = H·W in row-major order."""

    name: str
    config: type[AttentionConfig]
    build: Callable[[AttentionConfig, int, tuple[int, int]], nn.Module]
    recognise: Callable[[Mapping[str, tuple[int, ...]], int], Mapping[str, Any] | None]
    """`recognise(shapes, dim)`, of the parameters of one attention layer by name: what they tell of the configuration's
    fields, or None when they are not this family's."""


@runtime_checkable
class Interpretable(Protocol):
    """A layer that has something to tell of itself, the same for every picture, beside what its operator's node shows."""

    def constants(self) -> Mapping[str, Tensor]:
        """float32 tensors by the names under which an explanation has them."""


def require_positive(config: object, *names: str) -> None:
    """Raise a ConfigurationError unless each named field is a number above zero."""
    for name in names:
        number = getattr(config, name)
        if isinstance(number, bool) or not isinstance(number, int | float) or not 0 < number < float("inf"):
            raise ConfigurationError(f"{name} is {number!r} but must be a positive number")


def require_count(config: object, *names: str) -> None:
    """Raise a ConfigurationError unless each named field is a whole number above zero."""
    for name in names:
        number = getattr(config, name)
        if type(number) is not int or number < 1:
            raise ConfigurationError(f"{name} is {number!r} but must be a whole number above zero")
