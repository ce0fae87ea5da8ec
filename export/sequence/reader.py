"""Documents to windows of tokens, and a runner's answers on windows to one for each document: as the server does both."""

import shutil
import weakref
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from tempfile import mkdtemp

import numpy as np
from numpy.typing import NDArray

from gaussport.export.proof import Runs
from gaussport.export.sequence.probes import Tokens
from gaussport.models.text import Tokenization, encode, join, pad_batch, windows

MOST_TOKENS = 1 << 15
"""Tokens of one batch of windows, padding counted."""

Documents = Sequence[Sequence[Tokens]]
"""Of each document its windows."""


class TextReader:
    """A tokenization with the files that it names, by their names; they lie in a folder of their own while this lives."""

    def __init__(self, spec: Tokenization, files: Mapping[str, bytes]) -> None:
        self.spec = spec
        self._folder = Path(mkdtemp(prefix="gaussport-tokenizer-")) if files else Path()
        if files:
            weakref.finalize(self, shutil.rmtree, self._folder, ignore_errors=True)
        for name, content in files.items():
            (self._folder / name).write_bytes(content)

    def windows(self, document: bytes | str) -> list[Tokens]:
        """What the model reads of a document. Raises a TextError for one that it cannot read."""
        return windows(encode(document, self.spec, self._folder), self.spec)

    def answers(self, runner: Runs, name: str) -> Callable[[Documents], NDArray[np.float32]]:
        """The runner for documents: logarithms of probabilities [documents, classes], which are the logits, but for what is
        common to all classes, where a document is one window."""

        def answer(documents: Documents) -> NDArray[np.float32]:
            flat = [window for document in documents for window in document]
            found: dict[int, NDArray[np.float64]] = {}
            for places in _batches(flat):
                logits = runner.run({name: pad_batch([flat[place] for place in places], self.spec)})
                found |= dict(zip(places, _probabilities(logits), strict=True))
            rows, place = [], 0
            for document in documents:
                own = [found[place + index] for index in range(len(document))]
                rows.append(join(own, [len(window) for window in document]))
                place += len(document)
            with np.errstate(divide="ignore"):
                return np.log(np.stack(rows)).astype(np.float32)

        return answer


def _batches(rows: Sequence[Tokens]) -> Iterator[list[int]]:
    """Places of rows of like length, as many at a time as `MOST_TOKENS` allow."""
    order = sorted(range(len(rows)), key=lambda place: len(rows[place]))
    batch: list[int] = []
    for place in order:
        if batch and (len(batch) + 1) * len(rows[place]) > MOST_TOKENS:
            yield batch
            batch = []
        batch.append(place)
    if batch:
        yield batch


def _probabilities(logits: NDArray[np.float32]) -> NDArray[np.float64]:
    wide = logits.astype(np.float64)
    shares = np.exp(wide - wide.max(-1, keepdims=True))
    return np.asarray(shares / shares.sum(-1, keepdims=True))
