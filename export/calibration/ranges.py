"""Measure activations: two passes over pictures or texts, one for the largest magnitude, one for the histogram below it."""

from collections.abc import Callable, Sequence

import numpy as np
import onnx
from numpy.typing import NDArray

from gaussport.errors import ExportError
from gaussport.export.calibration.samples import Samples
from gaussport.export.calibration.thresholds import Counts, Method, threshold
from gaussport.export.inputs import Array, Inputs
from gaussport.export.model_file import serialize
from gaussport.export.precision.taps import tapped, with_peaks
from gaussport.export.progress import Watch
from gaussport.export.session import Session

BINS = 2048


def measured_ranges(
    model: onnx.ModelProto,
    names: Sequence[str],
    samples: Samples,
    method: Method,
    watch: Watch,
    beside: Callable[[Array], Inputs | Array] = lambda batch: batch,
) -> dict[str, float]:
    """For each float32 tensor of `names` the magnitude that int8 shall cover. `beside` gives what the model reads with a
    batch of them; by default nothing else.

    Raises:
        ExportError: a tensor is not finite for some sample.
    """
    peaks = np.zeros(len(names))
    session = Session(serialize(with_peaks(model, names)))
    for batch in watch(samples.batches(), samples.batch_count, "measuring ranges"):
        peaks = np.maximum(peaks, np.asarray(session.run_all(beside(batch), session.outputs), dtype=np.float64))
    for name, peak in zip(names, peaks, strict=True):
        if not np.isfinite(peak):
            raise ExportError(
                f"{name} is NaN or infinite for one of the {samples.things} of {samples.source}: it cannot be calibrated"
            )
    counts = [np.zeros(BINS, dtype=np.int64) for _ in names]
    session = Session(serialize(tapped(model, names)))
    for batch in watch(samples.batches(), samples.batch_count, "counting activations"):
        for count, peak, values in zip(counts, peaks, session.run_all(beside(batch), names), strict=True):
            count += _histogram(np.asarray(values, dtype=np.float32), float(peak))
    return {name: threshold(c, float(peak), method) for name, c, peak in zip(names, counts, peaks, strict=True)}


def _histogram(values: NDArray[np.float32], peak: float) -> Counts:
    """How many magnitudes lie in each of the equal bins over 0 … peak."""
    if peak == 0:
        return np.zeros(BINS, dtype=np.int64)
    bins = np.minimum((np.abs(values).ravel() * (BINS / peak)).astype(np.int64), BINS - 1)
    return np.bincount(bins, minlength=BINS).astype(np.int64)
