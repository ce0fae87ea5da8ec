"""What an operator is to the rest of the house: its names, its operands' axes, and the check that shapes fit them."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

DOMAIN = "gaussport"
"""ONNX domain, TensorRT plugin namespace and torch.library namespace: one word for all three."""

OPSET_VERSION = 1
"""Version of the operator set, and of each TensorRT plugin."""


@dataclass(frozen=True)
class Operand:
    """One input of an operator.

    `axes` names each axis: a number is that size exactly, a letter takes the size it meets first and must meet it again.
    """

    name: str
    axes: str
    optional: bool = False

    @property
    def letters(self) -> tuple[str, ...]:
        return tuple(self.axes.split())


@dataclass(frozen=True)
class Operator:
    """The names and operands of one operator; `rule` states what letters alone cannot (OPS: *b is 1 or B*)."""

    name: str
    folder: str
    operands: tuple[Operand, ...]
    attributes: tuple[tuple[str, float | int], ...] = ()
    rule: Callable[[Mapping[str, int]], str | None] = lambda _sizes: None

    @property
    def torch_name(self) -> str:
        """The operator's name in `torch.ops`, e.g. ``gaussport::separable_gaussian_filter``."""
        return f"{DOMAIN}::{self.folder}"

    def bind(self, shapes: Sequence[Sequence[int] | None]) -> dict[str, int]:
        """Match each operand's shape with its axes and return the size of every letter.

        Args:
            shapes: one shape per operand, in order; None for an optional operand that is not given.

        Raises:
            ValueError: a rank or size does not fit, naming the operand, its shape and the shape it should have.
        """
        sizes: dict[str, int] = {}
        for operand, shape in zip(self.operands, shapes, strict=True):
            if shape is not None:
                self._bind_one(operand, tuple(shape), sizes)
        complaint = self.rule(sizes)
        if complaint is not None:
            raise ValueError(f"{self.name}: {complaint}")
        return sizes

    def _bind_one(self, operand: Operand, shape: tuple[int, ...], sizes: dict[str, int]) -> None:
        letters = operand.letters
        fits = len(shape) == len(letters)
        for letter, size in zip(letters, shape, strict=False):
            wanted = int(letter) if letter.isdigit() else sizes.setdefault(letter, size)
            fits = fits and size == wanted
        if not fits:
            known = [str(sizes[letter]) if letter in sizes else letter for letter in letters]
            raise ValueError(
                f"{self.name}: {operand.name} has shape {list(shape)} but should be "
                f"[{', '.join(letters)}] = [{', '.join(known)}]"
            )
        if any(size == 0 for size in shape):
            raise ValueError(f"{self.name}: {operand.name} has shape {list(shape)}; no axis may be empty")
