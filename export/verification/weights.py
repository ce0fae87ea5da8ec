"""Are the stored weights the checkpoint's, number by number? A wrong weight that no probe wakes is wrong all the same."""

from gaussport.errors import BundleError
from gaussport.export.model_file import tensor_array
from gaussport.export.passes.initializer_names import TRANSPOSED
from gaussport.export.verification.subject import Subject
from gaussport.export.verification.suspects import difference


def weights_equal(subject: Subject) -> str:
    """Every initializer that is named as a parameter, or as its transpose, holds that parameter's numbers."""
    checkpoint = subject.original
    compared, others = 0, 0
    for tensor in subject.model.graph.initializer:
        name = tensor.name.removesuffix(TRANSPOSED)
        parameter = checkpoint.state_dict.get(name)
        if parameter is None:
            others += 1
            continue
        expected = parameter.numpy() if name == tensor.name else parameter.numpy().T
        fault = difference(tensor_array(tensor, subject.file), expected)
        if fault is not None:
            raise BundleError(f"{tensor.name} is not {checkpoint.source}'s: {fault}")
        compared += 1
    return f"{compared} weights equal {checkpoint.source} number by number, {others} initializers are computed from others"
