"""The proof that a model answers as the PyTorch module does, at every batch size that it will be served with.

questions ──reference──▶ expected logits ┐
    └───────each runner──▶ found logits ─┴─compare──▶ Proof
"""

import copy
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Protocol

import numpy as np
import onnx
import onnx.inliner
from numpy.typing import NDArray
from torch import nn

from gaussport.errors import ProofError
from gaussport.export.comparison import Comparison, compare
from gaussport.export.evaluation import evaluating, tensors_of, widened
from gaussport.export.histogram import ErrorHistogram
from gaussport.export.inputs import Inputs
from gaussport.export.model_file import ModelFile, serialize
from gaussport.export.precision.emulation import is_narrow
from gaussport.export.precision.own_rounding import rounding
from gaussport.export.precision.runners import ROUNDED, has_cpu_kernels, rounding_session
from gaussport.export.probes import PIXELS, Asks, Question
from gaussport.export.session import Session
from gaussport.export.tolerance import Tolerance, tolerance_between_integers, tolerance_between_runners, tolerance_for
from gaussport.freed_memory import give_back_memory

Logits = NDArray[np.float32]

_FEW = {"fp32": 2, "fp16": 7, "bf16": 7}
"""Rows of the largest batch on which rounding is measured: float64 is slow, and larger batches are more of the same."""

OUTPUT = "logits"
PYTORCH, AS_WRITTEN, INLINED = "PyTorch", "as written", "inlined"
INTEGERS = "PyTorch in int8"


class Runs(Protocol):
    """Anything that answers: a session on the model, or an engine built from it."""

    def run(self, inputs: Inputs) -> Logits:
        """Logits [batch, classes] of inputs, each [batch, …]. Raises a GaussportError when it cannot."""


class InPyTorch:
    """A module that answers as sessions do."""

    def __init__(self, module: nn.Module) -> None:
        self._module = module

    def run(self, inputs: Inputs) -> Logits:
        with evaluating(self._module):
            return np.asarray(self._module(*tensors_of(inputs)).numpy())


class Remembered:
    """Answers each question once, however many checks ask it."""

    def __init__(self, runner: Runs) -> None:
        self._runner = runner
        self._answers: dict[int, tuple[Inputs, Logits]] = {}

    def run(self, inputs: Inputs) -> Logits:
        if id(inputs) not in self._answers:
            self._answers[id(inputs)] = (inputs, self._runner.run(inputs))  # held, so that its id stays its own
        return self._answers[id(inputs)][1]


def remembered(runners: dict[str, Runs]) -> dict[str, Runs]:
    """The runners, each answering a question once."""
    return {name: Remembered(runner) for name, runner in runners.items()}


class UnderNames:
    """Another model of the same inputs, which may have other names for them."""

    def __init__(self, runner: Runs, names: Sequence[str]) -> None:
        self._runner, self._names = runner, names

    def run(self, inputs: Inputs) -> Logits:
        return self._runner.run(dict(zip(self._names, inputs.values(), strict=True)))


def on_pictures(runner: Runs, name: str = PIXELS) -> Callable[[Logits], Logits]:
    """The runner for pixels [batch, C, height, width] alone, its input of that name."""
    return lambda pixels: runner.run({name: pixels})


@dataclass(frozen=True)
class Proof:
    """What was compared with what, and how far apart it may be."""

    tolerance: Tolerance
    output: str
    comparisons: tuple[Comparison, ...]
    reference: str = PYTORCH
    histograms: dict[str, ErrorHistogram] = field(default_factory=dict)
    """How each subject's errors are spread."""

    @property
    def worst(self) -> Comparison:
        return max(self.comparisons, key=lambda c: (c.not_finite > 0, c.max_abs))

    @property
    def failed(self) -> list[Comparison]:
        return [c for c in self.comparisons if not c.within(self.tolerance.absolute)]

    def require(self) -> None:
        """Raise a ProofError that names the first batch size to fail and its worst error."""
        if not self.failed:
            return
        first = self.failed[0]
        worst = max((c for c in self.failed if c.batch == first.batch), key=lambda c: (c.not_finite > 0, c.max_abs))
        names = {AS_WRITTEN: "the exported model", INLINED: "the exported model with its functions inlined"}
        model = names.get(worst.subject, worst.subject)
        layout = "" if worst.layout == Comparison.layout else f", {worst.layout}"
        where = f"at batch {worst.batch} ({worst.probe}{layout})"
        if worst.not_finite:
            fault = (
                f"{where} {worst.not_finite} numbers of {self.output}, its own or {self.reference}'s, are NaN or infinite"
            )
        else:
            fault = (
                f"{where} the output {self.output} differs from {self.reference}'s by {worst.max_abs:.2e}, more than the "
                f"tolerance {self.tolerance.reason}; {worst.top1_agreement:.0%} of the rows agree on the class"
            )
        raise ProofError(f"{model} is not the checkpoint's: {fault}" if self.reference == PYTORCH else f"{model}: {fault}")


def prove(
    module: nn.Module,
    model: bytes | ModelFile,
    probes: Asks,
    max_batch: int,
    precision: str = "fp32",
) -> Proof:
    """Compare PyTorch with ONNX Runtime at batch 1, 2, 3, 7 and `max_batch`, with function bodies and with them inlined."""
    return prove_runners(module, sessions(model), probes.questions(max_batch), precision)


def prove_runners(
    module: nn.Module, runners: dict[str, Runs], questions: list[Question], precision: str, output: str = OUTPUT
) -> Proof:
    """Compare PyTorch with everything that runs the model, one question after the other."""
    with evaluating(module):
        answers = [InPyTorch(module).run(question.inputs) for question in questions]
        own_rounding = _own_rounding(module, questions, answers, precision)
    return _compared(PYTORCH, runners, questions, answers, tolerance_for(precision, _scale(answers), own_rounding), output)


def prove_integers(twin: nn.Module, runners: dict[str, Runs], questions: list[Question], output: str = OUTPUT) -> Proof:
    """Compare everything that runs an int8 model with its twin in PyTorch; see `integer_twin`."""
    return agree({INTEGERS: InPyTorch(twin), **runners}, questions, "int8", output, tolerance_between_integers)


def agree(
    runners: dict[str, Runs],
    questions: list[Question],
    precision: str,
    output: str = OUTPUT,
    allow: Callable[[str, float], Tolerance] = tolerance_between_runners,
) -> Proof:
    """Compare the first runner with each of the others, when there is no PyTorch to compare with. `allow` gives the
    tolerance of a precision and the largest logit."""
    reference = next(iter(runners))
    answers = [runners[reference].run(question.inputs) for question in questions]
    others = {name: runner for name, runner in runners.items() if name != reference}
    return _compared(reference, others, questions, answers, allow(precision, _scale(answers)), output)


def sessions(model: bytes | ModelFile) -> dict[str, Runs]:
    """The model in ONNX Runtime, as it is written and with its functions inlined; a narrow one also rounded as a GPU
    rounds it, which is all that can be run here of bfloat16."""
    return {name: make() for name, make in _ways(model).items()}


def sessions_in_turns(model: bytes | ModelFile) -> dict[str, Runs]:
    """The same, of which one is in memory at a time: for an export, where PyTorch and the model itself lie beside it."""
    turns = _Turns()
    return {name: _InTurn(make, turns) for name, make in _ways(model).items()}


def _ways(model: bytes | ModelFile) -> dict[str, Callable[[], Runs]]:
    file = model if isinstance(model, ModelFile) else ModelFile(model)
    proto = onnx.load_model_from_string(file.graph)
    ways: dict[str, Callable[[], Runs]] = {}
    if has_cpu_kernels(proto):
        ways[AS_WRITTEN] = lambda: Session(file)
        ways[INLINED] = lambda: Session(ModelFile(inlined(file.graph), file.beside))
    if is_narrow(proto):
        ways[ROUNDED] = lambda: rounding_session(file)
    return ways


class _Turns:
    """Makes runners, and lets each go before it makes the next."""

    def __init__(self) -> None:
        self._make: Callable[[], Runs] | None = None
        self._runner: Runs | None = None

    def runner(self, make: Callable[[], Runs]) -> Runs:
        """What `make` makes: that which is there, if it made it."""
        if self._runner is None or make is not self._make:
            self._runner = None
            give_back_memory()
            self._runner, self._make = make(), make
            give_back_memory()  # and what making it took
        return self._runner


class _InTurn:
    """A runner that is made when it is asked, and gone when another one is."""

    def __init__(self, make: Callable[[], Runs], turns: _Turns) -> None:
        self._make, self._turns = make, turns

    def run(self, inputs: Inputs) -> Logits:
        return self._turns.runner(self._make).run(inputs)


def inlined(model: bytes) -> bytes:
    """The model with every function body in the place of its node."""
    return serialize(onnx.inliner.inline_local_functions(onnx.load_model_from_string(model)))


def _compared(
    reference: str,
    runners: dict[str, Runs],
    questions: list[Question],
    answers: list[Logits],
    tolerance: Tolerance,
    output: str,
) -> Proof:
    comparisons, histograms = [], {name: ErrorHistogram() for name in runners}
    found_by = {name: [runner.run(question.inputs) for question in questions] for name, runner in runners.items()}
    for turn, (question, expected) in enumerate(zip(questions, answers, strict=True)):
        for name, all_found in found_by.items():
            found = all_found[turn]
            comparisons.append(compare(name, question.probe, expected, found, tolerance.scale, question.layout))
            histograms[name].add(expected, found, tolerance.scale)
    return Proof(tolerance, output, tuple(comparisons), reference, histograms)


def _own_rounding(module: nn.Module, questions: list[Question], answers: list[Logits], precision: str) -> float | None:
    """How far rounding alone moves the module's logits over the smaller batches: from float64 to float32, and for a narrow
    format from float32 to it. None when that cannot be told."""
    if precision not in _FEW:
        return None
    few = [(q.inputs, answer) for q, answer in zip(questions, answers, strict=True) if q.rows <= _FEW[precision]]
    try:
        if precision == "fp32":
            wide = copy.deepcopy(module).double()
            moved = [wide(*widened(tensors_of(inputs))).numpy() for inputs, _ in few]
        else:
            with rounding(module, tensors_of(few[0][0]), precision):
                moved = [InPyTorch(module).run(inputs) for inputs, _ in few]
    except RuntimeError:  # a module that makes float32 tensors of its own has no float64 to compare with
        return None
    errors = [np.abs(other - answer) for other, (_, answer) in zip(moved, few, strict=True)]
    return max(float(error[np.isfinite(error)].max(initial=0.0)) for error in errors)


def _scale(answers: list[Logits]) -> float:
    return max(float(np.abs(answer[np.isfinite(answer)]).max(initial=0.0)) for answer in answers)
