"""Store equal tensors once: a weight that two modules share is written once and read twice."""

from collections.abc import Mapping

import numpy as np
import onnx_ir as ir
from numpy.typing import NDArray
from onnx_ir.passes.common import DeduplicateInitializersPass

_ALL_SIZES = 2**62  # elements; the pass would leave large tensors alone, which are those worth sharing


def deduplicate_initializers(model: ir.Model, _parameters: Mapping[str, NDArray[np.generic]]) -> None:
    """Replace initializers that are equal in type, shape and every byte by one of them."""
    DeduplicateInitializersPass(size_limit=_ALL_SIZES)(model)
