"""How an operator's node is explained in ONNX: a function from the node's operands to the tensors that people look at."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import onnx
from numpy.typing import NDArray

from gaussport.plugins.operator import Operator

Array = NDArray[np.float64]

EXPLANATION_DOMAIN = "gaussport.explanation"
"""Domain of the functions that explain: they exist in `explain.onnx` only."""


@dataclass(frozen=True)
class Explanation:
    """One operator's explanation; an operator's folder has it as `EXPLANATION` in `explanation.py`.

    `variant(node)` names the function that a node needs; `function(opset, variant)` is that function, whose inputs are the
    node's and whose outputs, all float32, are called as they are called in an explanation. `outputs` has the axes of each.
    `expected(operands, attributes)` computes the same in numpy from the operator's operands, in order, as PyTorch has them.
    """

    operator: Operator
    outputs: Mapping[str, str]
    variant: Callable[[onnx.NodeProto], str]
    function: Callable[[int, str], onnx.FunctionProto]
    expected: Callable[[Sequence[Array | None], Mapping[str, Any]], dict[str, Array]]
