"""The proof that a model file answers as the PyTorch module does, at every batch size that it will be served with."""

import copy
from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
import onnx
import onnx.inliner
import torch
from numpy.typing import NDArray
from torch import nn

from gaussport.errors import ProofError
from gaussport.export.comparison import Comparison, compare
from gaussport.export.evaluation import evaluating
from gaussport.export.model_file import serialize
from gaussport.export.probes import Pixels, Probes, batch_sizes
from gaussport.export.session import Session
from gaussport.export.tolerance import Tolerance, tolerance_for

Logits = NDArray[np.float32]

_FEW = 2  # rows; float64 is slow

AS_WRITTEN, INLINED = "as written", "inlined"


@dataclass(frozen=True)
class Proof:
    """What was compared, and how far apart it may be."""

    tolerance: Tolerance
    output: str
    comparisons: tuple[Comparison, ...]

    @property
    def worst(self) -> Comparison:
        return max(self.comparisons, key=lambda c: (c.not_finite > 0, c.max_abs))

    def require(self) -> None:
        """Raise a ProofError that names the first batch size to fail and its worst error."""
        failed = [c for c in self.comparisons if not c.within(self.tolerance.absolute)]
        if not failed:
            return
        worst = max((c for c in failed if c.batch == failed[0].batch), key=lambda c: (c.not_finite > 0, c.max_abs))
        model = "the exported model" if worst.subject == AS_WRITTEN else "the exported model with its functions inlined"
        where = f"at batch {worst.batch} ({worst.probe})"
        if worst.not_finite:
            fault = f"{where} {worst.not_finite} numbers of {self.output}, its own or PyTorch's, are NaN or infinite"
        else:
            fault = (
                f"{where} the output {self.output} differs from PyTorch's by {worst.max_abs:.2e}, more than the tolerance "
                f"{self.tolerance.reason}; {worst.top1_agreement:.0%} of the rows agree on the class"
            )
        raise ProofError(f"{model} is not the checkpoint's: {fault}")


def prove(module: nn.Module, model: bytes, probes: Probes, max_batch: int, precision: str = "fp32") -> Proof:
    """Compare PyTorch with ONNX Runtime at batch 1, 2, 7 and `max_batch`, with function bodies and with them inlined."""
    subjects = {AS_WRITTEN: Session(model), INLINED: Session(inlined(model))}
    questions = [(name, pixels) for size in batch_sizes(max_batch) for name, pixels in probes.batches(size)]
    with evaluating(module):
        answers = [_torch_answer(module, pixels) for _, pixels in questions]
        own_rounding = _own_rounding(module, questions, answers)
    scale = _scale(answers)
    comparisons = tuple(
        compare(subject, name, expected, session.run(pixels), scale)
        for (name, pixels), expected in zip(questions, answers, strict=True)
        for subject, session in subjects.items()
    )
    return Proof(tolerance_for(precision, scale, own_rounding), subjects[AS_WRITTEN].output, comparisons)


def inlined(model: bytes) -> bytes:
    """The model with every function body in the place of its node."""
    return serialize(onnx.inliner.inline_local_functions(onnx.load_model_from_string(model)))


def _torch_answer(module: Callable[[torch.Tensor], torch.Tensor], pixels: Pixels) -> Logits:
    answer = module(torch.from_numpy(pixels))
    return np.asarray(answer.numpy())


def _own_rounding(module: nn.Module, questions: list[tuple[str, Pixels]], answers: list[Logits]) -> float:
    """Largest difference between PyTorch in float32 and float64, over the smallest batches."""
    few = [(pixels, answer) for (_, pixels), answer in zip(questions, answers, strict=True) if len(pixels) <= _FEW]
    try:
        wide = copy.deepcopy(module).double()
        exact = [wide(torch.from_numpy(pixels).double()).numpy() for pixels, _ in few]
    except RuntimeError:  # a module that makes float32 tensors of its own has no float64 to compare with
        return 0.0
    errors = [np.abs(wide_answer - answer) for wide_answer, (_, answer) in zip(exact, few, strict=True)]
    return max(float(error[np.isfinite(error)].max(initial=0.0)) for error in errors)


def _scale(answers: list[Logits]) -> float:
    return max(float(np.abs(answer[np.isfinite(answer)]).max(initial=0.0)) for answer in answers)
