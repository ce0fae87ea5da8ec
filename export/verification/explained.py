"""Does `explain.onnx` tell of this model, and the truth?"""

import copy
from collections.abc import Mapping

import numpy as np
import torch
from numpy.typing import NDArray
from torch import nn

from gaussport.as_served import ServedExplanation
from gaussport.errors import BundleError
from gaussport.export.bundle.manifest import EXPLAIN_FILE
from gaussport.export.evaluation import tensors_of, widened
from gaussport.export.explanation.graph import explanations
from gaussport.export.explanation.in_pytorch import explained_in_pytorch
from gaussport.export.explanation.writing import constants_of
from gaussport.export.inputs import Inputs
from gaussport.export.probes import Question
from gaussport.export.proof import agree
from gaussport.export.tolerance import FLOORS, OWN_ROUNDINGS, tolerance_between_forms, tolerance_between_runners
from gaussport.export.verification.subject import Subject
from gaussport.plugins import DOMAIN
from gaussport.plugins.explanation import Array

SUM_ERROR = {"fp32": 1e-5, "fp16": 2e-3, "bf16": 1e-5, "int8": 1e-5}
"""How far an attention row may be from the sum that its operator gives it. bf16 is explained in float32; of float16 weights
the λ of a token are rounded one by one."""
ERROR = 1e-5
"""How far a float32 number may be from PyTorch's, as a share of the largest, or of 1 where all are smaller."""
_MOST_ROWS = 2  # the batches that are explained: everything of every token is kept
_MOST_TOKENS = 1024  # of a text: a row of attention has one number for each


def explanation_tells(subject: Subject) -> str:
    """It runs, has the model's own logits and every layer with our operators, and its rows sum as they must."""
    explainable = [node for node in subject.nodes if node.domain == DOMAIN and node.op_type in explanations()]
    if EXPLAIN_FILE not in subject.bundle.manifest.files:
        return "there is nothing to explain" if not explainable else f"the bundle has no {EXPLAIN_FILE}, which is no fault"
    explanation = ServedExplanation(subject.bundle)
    if len(explanation.layers) != len(explainable):
        raise BundleError(
            f"{EXPLAIN_FILE} tells of {len(explanation.layers)} layers where the graph has {len(explainable)} with our "
            "operators: export the bundle again"
        )
    few = _few(subject)
    logits, rows = _same_logits(subject, explanation, few), _rows_sum(subject, explanation, few)
    return f"{len(explanation.layers)} layers, {logits}, {rows}"


def _few(subject: Subject) -> list[Question]:
    text = subject.bundle.manifest.takes_text
    few = [question for question in subject.questions if question.rows <= _MOST_ROWS]
    return [question for question in few if not text or _tokens_of(question) <= _MOST_TOKENS]


def _tokens_of(question: Question) -> int:
    """The length of a batch of texts."""
    return int(next(iter(question.inputs.values())).shape[1])


def _same_logits(subject: Subject, explanation: ServedExplanation, few: list[Question]) -> str:
    """Its graph is the model's, run by the same kernels but for bfloat16, which is explained in float32."""
    manifest, (name, runner) = subject.bundle.manifest, next(iter(subject.runners.items()))
    allow = tolerance_between_runners if manifest.precision == "bf16" else tolerance_between_forms
    proof = agree({name: runner, EXPLAIN_FILE: explanation}, few, manifest.precision, manifest.output.name, allow)
    proof.require()
    return f"the model's logits within {proof.worst.max_abs:.1e}"


def _rows_sum(subject: Subject, explanation: ServedExplanation, few: list[Question]) -> str:
    errors: dict[str, float] = {}
    for question in (few[0], few[-1]):
        for layer, error in explanation.row_errors(question.inputs).items():
            errors[layer] = max(error, errors.get(layer, 0.0))
    layer, worst = max(errors.items(), key=lambda item: item[1] if np.isfinite(item[1]) else np.inf)
    if not worst <= SUM_ERROR[subject.bundle.manifest.precision]:
        raise BundleError(f"{EXPLAIN_FILE}: the attention rows of {layer} miss their sum by {worst:.1e}: export it again")
    return f"attention rows miss their sum by {worst:.1e} at most"


def explanation_as_in_pytorch(subject: Subject) -> str:
    """Its numbers are PyTorch's: in float32 each, in a narrower model on average, since a token between two components may
    change sides."""
    if EXPLAIN_FILE not in subject.bundle.manifest.files:
        return "there is nothing to compare"
    explanation = ServedExplanation(subject.bundle)
    precision, module = subject.bundle.manifest.precision, subject.classifier
    errors: dict[str, float] = {}
    allowed: dict[str, float] = {}
    for question in _few(subject):
        told = explanation.tensors(question.inputs)
        expected = _in_pytorch(module, question.inputs, explanation.layers)
        own = _own_rounding(module, question.inputs, explanation.layers, expected) if precision == "fp32" else {}
        expected |= {name: array.astype(np.float64) for name, array in constants_of(module).items()}
        for name, array in expected.items():
            if name not in told:
                raise BundleError(f"{EXPLAIN_FILE} does not tell {name}, which PyTorch does: export the bundle again")
            error = _error(told[name], array, "max" if precision == "fp32" else "mean")
            errors[name] = max(error, errors.get(name, 0.0))
            least = ERROR if precision == "fp32" else FLOORS[precision]
            allowed[name] = max(least, OWN_ROUNDINGS["fp32"] * own.get(name, 0.0), allowed.get(name, 0.0))
    wrong = [name for name, error in errors.items() if not error <= allowed[name]]
    if wrong:
        raise BundleError(
            f"{EXPLAIN_FILE}: {wrong[0]} differs from PyTorch's by {errors[wrong[0]]:.1e} of the largest where "
            f"{allowed[wrong[0]]:.1e} is allowed: export the bundle again"
        )
    mean = "" if precision == "fp32" else " on average"
    return f"{len(errors)} tensors are PyTorch's within {max(errors.values()):.1e} of the largest{mean}"


def _in_pytorch(module: nn.Module, inputs: Inputs, layers: tuple[str, ...], wide: bool = False) -> dict[str, Array]:
    tensors = tensors_of(inputs)
    found = explained_in_pytorch(module, widened(tensors) if wide else tensors)
    if len(found) != len(layers):
        raise BundleError(f"{EXPLAIN_FILE} tells of {len(layers)} layers and PyTorch calls our operators {len(found)} times")
    return {f"{layer}/{name}": array for layer, told in zip(layers, found, strict=True) for name, array in told.items()}


def _own_rounding(
    module: nn.Module, inputs: Inputs, layers: tuple[str, ...], expected: Mapping[str, Array]
) -> dict[str, float]:
    """How far PyTorch's float32 is from its float64; nothing for a module that makes float32 tensors of its own."""
    try:
        exact = _in_pytorch(copy.deepcopy(module).to(torch.float64), inputs, layers, wide=True)
    except RuntimeError:
        return {}
    return {name: _error(array, exact[name], "max") for name, array in expected.items()}


def _error(found: NDArray[np.generic], expected: NDArray[np.generic], kind: str) -> float:
    """Infinite when the shapes differ."""
    if found.shape != expected.shape:
        return np.inf
    apart = np.abs(found.astype(np.float64) - expected.astype(np.float64))
    scale = max(1.0, float(np.abs(expected).max(initial=0.0)))
    return float(apart.max(initial=0.0) if kind == "max" else apart.mean()) / scale
