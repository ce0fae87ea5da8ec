"""Are the stored weights the checkpoint's, number by number? A wrong weight that no probe wakes is wrong all the same."""

import numpy as np
from numpy.typing import NDArray

from gaussport.errors import BundleError
from gaussport.export.model_file import tensor_array
from gaussport.export.passes.initializer_names import TRANSPOSED
from gaussport.export.precision.quantization import INTEGERS, SCALES
from gaussport.export.verification.subject import Subject
from gaussport.export.verification.suspects import difference

Numbers = NDArray[np.generic]

_HALF_A_STEP = 0.5 + 1e-4  # and what float32 scales round


def weights_equal(subject: Subject) -> str:
    """Every initializer that is named as a parameter, or as its transpose, holds that parameter's numbers; as int8, to half
    a step of its scale."""
    checkpoint = subject.original
    compared, others = 0, 0
    scales = {t.name: t for t in subject.model.graph.initializer if t.name.endswith(SCALES)}
    for tensor in subject.model.graph.initializer:
        stored_name = tensor.name.removesuffix(INTEGERS)
        name = stored_name.removesuffix(TRANSPOSED)
        parameter = checkpoint.state_dict.get(name)
        if parameter is None:
            others += 1
            continue
        expected = parameter.numpy() if name == stored_name else parameter.numpy().T
        stored = tensor_array(tensor, subject.file)
        if stored_name == tensor.name:
            fault = difference(stored, expected)
        else:
            fault = _beyond_half_a_step(stored, tensor_array(scales[f"{stored_name}{SCALES}"], subject.file), expected)
        if fault is not None:
            raise BundleError(f"{tensor.name} is not {checkpoint.source}'s: {fault}")
        compared += 1
    return f"{compared} weights equal {checkpoint.source} number by number, {others} initializers are computed from others"


def _beyond_half_a_step(stored: Numbers, scales: Numbers, expected: Numbers) -> str | None:
    """What is wrong with integers that stand for `expected`, a scale for each channel of one axis; None when nothing is."""
    axes = [axis for axis, size in enumerate(stored.shape) if size == scales.size]  # a square one fits both ways
    if not axes or stored.shape != expected.shape:
        return f"its shape is {list(stored.shape)} with {scales.size} scales, that of the parameter {list(expected.shape)}"
    distances = []
    for axis in axes:
        steps = scales.astype(np.float64).reshape([-1 if a == axis else 1 for a in range(stored.ndim)])
        distances.append(np.abs(stored.astype(np.float64) - expected.astype(np.float64) / steps).max())
    worst = min(distances)
    return None if worst <= _HALF_A_STEP else f"an integer is {worst:.2f} steps of its scale from the parameter"
