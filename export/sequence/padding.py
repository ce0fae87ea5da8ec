"""A padded row answers as it does alone: what makes a batch of texts safe to form."""

import numpy as np
from numpy.typing import NDArray

from gaussport.export.comparison import C_ORDER
from gaussport.export.inputs import Inputs
from gaussport.export.probes import Question
from gaussport.export.proof import OUTPUT, Proof, Runs, agree
from gaussport.export.tolerance import Tolerance, tolerance_for

ALONE = "each text alone"
LARGEST_ERROR = 1e-5
"""How far a float32 logit may move, as a share of the largest, when its row is padded."""


class Alone:
    """A runner that is given one row at a time, without its padding."""

    def __init__(self, runner: Runs, pad: int) -> None:
        self._runner, self._pad = runner, pad

    def run(self, inputs: Inputs) -> NDArray[np.float32]:
        ((name, rows),) = inputs.items()
        alone = [row[: int(np.count_nonzero(row != self._pad))][np.newaxis] for row in rows]
        return np.concatenate([self._runner.run({name: row}) for row in alone])


def padding_proof(
    runners: dict[str, Runs], questions: list[Question], pad: int, precision: str, output: str = OUTPUT
) -> Proof:
    """Every runner on whole batches against itself, or the first of them, on each of their rows alone."""
    padded = [question for question in questions if question.rows > 1 and question.layout == C_ORDER]
    return agree({ALONE: Alone(next(iter(runners.values())), pad), **runners}, padded, precision, output, _tolerance)


def _tolerance(precision: str, scale: float) -> Tolerance:
    if precision != "fp32":
        return tolerance_for(precision, scale)
    return Tolerance(LARGEST_ERROR * scale, scale, None, precision, unknown="the same row, with and without padding")
