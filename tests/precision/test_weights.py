"""A wrong weight is found in every precision, however little the logits show of it."""

from types import SimpleNamespace
from typing import Any

import numpy as np
import onnx_graphsurgeon as gs
import pytest
from onnx import numpy_helper

from gaussport.errors import BundleError
from gaussport.export.model_file import ModelFile
from gaussport.export.passes import operate
from gaussport.export.precision.casting import narrow
from gaussport.export.precision.formats import FORMATS
from gaussport.export.precision.quantization import quantizable, quantize
from gaussport.export.verification.weights import weights_equal
from tests.precision.subjects import Zoo


@pytest.mark.parametrize("precision", ["fp16", "bf16", "int8"])
def test_the_largest_weight_negated_is_found(ssog: Zoo, precision: str) -> None:
    if precision == "int8":
        inputs = {node.inputs[0].name for node in quantizable(gs.import_onnx(ssog.model)).values()}
        model = operate(ssog.model, lambda graph: quantize(graph, dict.fromkeys(inputs, 4.0)))
    else:
        model = operate(ssog.model, lambda graph: narrow(graph, FORMATS[precision]))
    subject: Any = SimpleNamespace(original=ssog.checkpoint, model=model, file=ModelFile(b""))
    assert weights_equal(subject).startswith("79 weights equal")
    ending = ".weight.T.int8" if precision == "int8" else ".weight.T"
    tensor = next(t for t in model.graph.initializer if t.name.endswith(f"mlp.0{ending}"))
    values = numpy_helper.to_array(tensor).copy()
    largest = np.unravel_index(np.abs(values.astype(np.float32)).argmax(), values.shape)
    values[largest] = -values[largest]
    tensor.CopyFrom(numpy_helper.from_array(values, tensor.name))
    with pytest.raises(BundleError, match=rf"{tensor.name} is not mnist-ssog\.safetensors's"):
        weights_equal(subject)
