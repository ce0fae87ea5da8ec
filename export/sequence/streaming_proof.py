"""The proof that `step.onnx` reads a stream as `model.onnx` reads the whole sequence, however it is cut into chunks."""

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from gaussport.errors import ExportError
from gaussport.export.bundle.stream import GIVEN, LEFT, StreamSpec
from gaussport.export.inputs import Inputs
from gaussport.export.model_file import ModelFile
from gaussport.export.probes import Question
from gaussport.export.proof import OUTPUT, Proof, Runs, agree
from gaussport.export.sequence.probes import TOKENS, TokenProbes
from gaussport.export.session import Session
from gaussport.export.tolerance import Tolerance, tolerance_between_runners
from gaussport.plugins.latent_memory_routing.memory_product import CHUNK

WHOLE = "the whole sequence"
LARGEST_ERROR = 1e-4
"""How far a logit at the end of a stream may be from that of the whole sequence, as a share of the largest."""
CUTS = {
    "in one chunk": (1 << 30,),
    "token by token": (1,),
    "in odd chunks": (7, 1, 2, 13),
    "around the scan's chunks": (CHUNK - 1, CHUNK, CHUNK + 1),
    "in large chunks": (4 * CHUNK + 3,),
}
"""How a sequence is cut: the chunks' lengths, over and over."""

_ROWS = 3
_MOST_STEPS = 400  # token by token a stream is followed so far, and read in one chunk from there


@dataclass(frozen=True)
class Streamed:
    """`step.onnx` run over a batch of sequences in chunks of such lengths. Rows of a batch are streams of their own: where
    one has ended, the padding that its chunk is filled up with must leave it as it is."""

    session: Session
    stream: StreamSpec
    cut: tuple[int, ...]
    name: str = TOKENS

    def run(self, inputs: Inputs) -> NDArray[np.float32]:
        tokens = inputs[self.name]
        rows, names = len(tokens), [part.name for part in self.stream.state]
        state = {part.name: np.zeros((rows, *map(int, part.shape[1:])), part.dtype) for part in self.stream.state}
        outputs = [self.session.output, *(f"{LEFT}{name}" for name in names)]
        logits = None
        for start, stop in _pieces(tokens.shape[1], self.cut):
            fed = {self.name: tokens[:, start:stop], **{f"{GIVEN}{name}": array for name, array in state.items()}}
            logits, *left = self.session.run_all(fed, outputs)
            state = dict(zip(names, left, strict=True))
        if logits is None:
            raise ExportError("a stream without tokens has no logits")
        return np.asarray(logits, dtype=np.float32)


def streaming_proof(
    whole: Runs, step: ModelFile, stream: StreamSpec, probes: TokenProbes, precision: str = "fp32", output: str = OUTPUT
) -> Proof:
    """Every way of cutting, at every length, alone and as a batch of streams that end at different tokens."""
    session = Session(step)
    runners: dict[str, Runs] = {WHOLE: whole}
    runners |= {f"a stream {name}": Streamed(session, stream, cut, probes.name) for name, cut in CUTS.items()}
    return agree(runners, list(_questions(probes)), precision, output, _tolerance)


def _questions(probes: TokenProbes) -> Iterator[Question]:
    for length in probes.lengths:
        for size in (1, _ROWS):
            name, rows = next(iter(probes.rows(size, length)))
            yield Question(f"{name}, length {length}", {probes.name: rows})


def _pieces(length: int, cut: tuple[int, ...]) -> Iterator[tuple[int, int]]:
    start, step = 0, 0
    while start < length:
        size = cut[step % len(cut)] if step < _MOST_STEPS else length
        yield start, min(start + size, length)
        start, step = start + size, step + 1


def _tolerance(precision: str, scale: float) -> Tolerance:
    if precision != "fp32":  # the whole sequence is rounded, and the stream is not
        return tolerance_between_runners(precision, scale)
    return Tolerance(LARGEST_ERROR * scale, scale, None, precision, unknown="a stream and the whole sequence")
