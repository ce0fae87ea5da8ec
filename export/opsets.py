"""Which ONNX operator sets we write, in one place, so that a wrong wish is refused before any work."""

from gaussport.errors import UsageError

LOWEST = 18
"""Torch's exporter writes 18 and later; reaching lower needs a conversion that fails, in silence, for its own ReduceMean."""
HIGHEST = 25
"""The last that the exporter's version converter reaches without falling back; ONNX Runtime 1.31 runs all of the range."""
DEFAULT = 20
"""The first with GELU as one operator, and old enough for TensorRT 10."""


def check_opset(opset: int) -> None:
    """Raise a UsageError unless we can write this opset."""
    if not LOWEST <= opset <= HIGHEST:
        raise UsageError(f"opset {opset} is not supported: choose one from {LOWEST} to {HIGHEST} (the default is {DEFAULT})")
