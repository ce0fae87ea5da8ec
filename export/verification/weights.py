"""Are the stored weights the checkpoint's, number by number? A wrong weight that no probe wakes is wrong all the same."""

import numpy as np
import onnx
from onnx import numpy_helper

from gaussport.errors import BundleError
from gaussport.export.passes.initializer_names import TRANSPOSED
from gaussport.export.verification.subject import Subject
from gaussport.models.checkpoint import read_checkpoint


def weights_equal(subject: Subject) -> str:
    """Every initializer that is named as a parameter, or as its transpose, holds that parameter's numbers."""
    assert subject.checkpoint is not None
    checkpoint = read_checkpoint(subject.checkpoint, subject.config)
    compared, others = 0, 0
    for tensor in subject.model.graph.initializer:
        name = tensor.name.removesuffix(TRANSPOSED)
        parameter = checkpoint.state_dict.get(name)
        if parameter is None or tensor.data_location == onnx.TensorProto.EXTERNAL:
            others += 1
            continue
        stored = numpy_helper.to_array(tensor)
        expected = parameter.numpy() if name == tensor.name else parameter.numpy().T
        if stored.shape != expected.shape:
            raise BundleError(f"{tensor.name} has shape {list(stored.shape)}, in {checkpoint.source} {list(expected.shape)}")
        different = int(np.count_nonzero(stored != expected.astype(stored.dtype)))
        if different:
            raise BundleError(f"{tensor.name} differs from {checkpoint.source} in {different} of {stored.size} numbers")
        compared += 1
    return f"{compared} weights equal {checkpoint.source} number by number, {others} initializers are computed from others"
