"""`step.onnx` in a session: the next tokens of several streams, each with its state, in one run.

A row is a record: a chunk of tokens, padded, and a stream's state; an answer is one of the logits and the state after them.
The graph leaves padding out of the state, and a row depends on no other, so that chunks of about one length are batched.
"""

import math
import threading
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from gaussport.export.bundle.manifest import DATA_FILE, STEP_FILE
from gaussport.export.bundle.store import Bundle
from gaussport.export.bundle.stream import GIVEN, LEFT
from gaussport.models.text import pad_batch
from gaussport.serving.errors import RequestError
from gaussport.serving.provider_options import ProviderOptions
from gaussport.serving.providers import open_session
from gaussport.serving.text.queue import Ragged
from gaussport.serving.text.running import without_padding
from gaussport.serving.waiting import Rows

LONGEST_CHUNK = 4096
"""Tokens that one run reads of a stream; a client's larger chunk is read in several."""

Tokens = NDArray[np.int64]
State = NDArray[Any]
"""One record with a field for each part of the state."""


@dataclass(frozen=True)
class Step:
    """What one stream has next, and its state before it."""

    tokens: Tokens
    state: State


class StepModel:
    """The session of a bundle's `step.onnx`, on `provider`: `cpu` or `cuda`."""

    def __init__(self, bundle: Bundle, provider: str, threads: int, options: ProviderOptions) -> None:
        manifest = bundle.manifest
        assert manifest.stream is not None
        self._manifest, self._spec = manifest, manifest.tokenization
        self._parts = [part.name for part in manifest.stream.state]
        self.state: np.dtype[Any] = np.dtype(
            [(part.name, part.dtype, tuple(map(int, part.shape[1:]))) for part in manifest.stream.state]
        )
        self._answer = np.dtype([("logits", np.float32, (len(manifest.labels),)), ("state", self.state)])
        beside = {DATA_FILE: bundle.read(DATA_FILE)} if DATA_FILE in manifest.files else {}
        name, words = f"{STEP_FILE} of {bundle.path}", options.words(provider)
        self._session = open_session(bundle.read(STEP_FILE), name, provider, words, threads, beside, any_shape=True)
        self._fetch = [manifest.output.name, *(f"{LEFT}{part}" for part in self._parts)]
        self._cuts, self._alone = provider == "cpu", threading.Lock()

    def fresh(self) -> State:
        """The state of a stream that has had nothing yet."""
        return np.zeros((), dtype=self.state)

    def rows(self) -> Ragged[Step]:
        return Ragged(lambda step: len(step.tokens), self._laid_out)

    def _laid_out(self, steps: Sequence[Step], length: int) -> Rows:
        rows = np.empty(len(steps), dtype=[("tokens", np.int64, (length,)), ("state", self.state)])
        rows["tokens"] = pad_batch([step.tokens for step in steps], self._spec, length)
        for row, step in enumerate(steps):
            rows["state"][row] = step.state
        return rows

    def run(self, rows: Rows) -> Rows:
        """Records of tokens and states to records of logits and states."""
        tokens = without_padding(rows["tokens"], self._spec.pad) if self._cuts else np.ascontiguousarray(rows["tokens"])
        inputs = {self._manifest.input.name: tokens}
        inputs |= {f"{GIVEN}{part}": np.ascontiguousarray(rows["state"][part]) for part in self._parts}
        if self._cuts:
            found = self._session.run(self._fetch, inputs)
        else:
            with self._alone:
                found = self._session.run(self._fetch, inputs)
        answers = np.empty(len(rows), dtype=self._answer)
        answers["logits"] = found[0]
        for part, array in zip(self._parts, found[1:], strict=True):
            answers["state"][part] = array
        return answers


def check_finite(answers: Rows) -> None:
    """A stream never goes on from a state that has lost its numbers."""
    state = answers["state"]
    numbers = [answers["logits"], *(state[part] for part in state.dtype.names or ())]
    if not all(math.isfinite(float(np.sum(part, dtype=np.float64))) for part in numbers):
        raise RequestError("the model's answer is not finite: the input is out of range", "not_finite")
