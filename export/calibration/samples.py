"""What a model is calibrated with and measured on, and how a runner answers it, whether it reads pictures or text."""

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray

from gaussport.export.bundle.manifest import FurtherInput
from gaussport.export.calibration import pictures
from gaussport.export.proof import Runs, on_pictures
from gaussport.export.sequence import texts
from gaussport.export.sequence.reader import TextReader
from gaussport.models.image.preprocess import Preprocessing
from gaussport.models.text.tokenization import Tokenization

Answers = Callable[[Any], NDArray[np.float32]]
"""What `Samples.readable` gives at a time → logits [samples, classes]."""


class Samples(Protocol):
    """Pictures or texts."""

    @property
    def source(self) -> str: ...
    @property
    def count(self) -> int: ...
    @property
    def targets(self) -> tuple[int, ...]: ...
    @property
    def names(self) -> tuple[str, ...]: ...
    @property
    def things(self) -> str:
        """What they are, in a word."""

    @property
    def batch_count(self) -> int: ...

    def batches(self) -> Iterator[NDArray[Any]]:
        """All in order, as arrays that the probes' `with_samples` takes."""

    def readable(self) -> Iterator[tuple[list[int], Any, list[int]]]:
        """Without those that cannot be read: which are shown, what they are, and which are not."""

    def digest(self) -> str:
        """The hash of all that the model reads."""


@dataclass(frozen=True)
class Source:
    """Where a model's samples come from: what it reads, and the files that its tokenization names."""

    front: Preprocessing | Tokenization
    files: Mapping[str, bytes] = field(default_factory=dict)
    further_inputs: tuple[FurtherInput, ...] = ()

    def unlabelled(self, source: str, most: int) -> Samples:
        """Samples to calibrate with. Raises a DataError."""
        if isinstance(self.front, Tokenization):
            return texts.unlabelled(source, TextReader(self.front, self.files), most)
        return pictures.unlabelled(source, self.front, most)

    def labelled(self, source: str, labels: tuple[str, ...]) -> Samples:
        """Samples to measure with.

        Raises:
            UsageError: the model reads more than that.
            DataError: there are none, or they have other labels.
        """
        if isinstance(self.front, Tokenization):
            return texts.labelled(source, TextReader(self.front, self.files), labels)
        pictures.check_pictures_suffice(self.further_inputs)
        return pictures.labelled(source, self.front, labels)

    def answers(self, runner: Runs, name: str) -> Answers:
        """The runner for samples, its first input of that name."""
        if isinstance(self.front, Tokenization):
            return TextReader(self.front, self.files).answers(runner, name)
        return on_pictures(runner, name)
