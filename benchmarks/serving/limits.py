"""The limits that no server can pass: the same session and the same decoder in one process, without HTTP, in full batches.

    python benchmarks/serving/limits.py BUNDLE BATCH SECONDS

prints one JSON object: milliseconds of one core for a picture, of the session alone and of decoding, batch and session.
"""

import json
import sys
import time
from collections.abc import Callable
from pathlib import Path

import numpy as np
from bodies import photographs, tensors

from gaussport.export.bundle.store import open_bundle
from gaussport.models.image.decode import decode
from gaussport.models.image.preprocess import to_pixels
from gaussport.serving.runtime import Runtime


def main() -> None:
    path, batch, seconds = Path(sys.argv[1]), int(sys.argv[2]), float(sys.argv[3])
    bundle = open_bundle(path)
    spec = bundle.manifest.preprocessing
    runtime = Runtime(bundle, threads=1)
    jpegs = photographs()[:batch]
    rows = tensors(jpegs, spec)
    buffer = np.empty_like(rows)

    def session() -> None:
        runtime.run(rows)

    def pipeline() -> None:
        for row, jpeg in zip(buffer, jpegs, strict=True):
            to_pixels(decode(jpeg, spec.background).rgb, spec, out=row)
        runtime.run(buffer)

    steps = {"session": session, "pipeline": pipeline}
    json.dump({name: cost_ms(step, seconds) / batch for name, step in steps.items()}, sys.stdout)


def cost_ms(step: Callable[[], None], seconds: float) -> float:
    """Processor milliseconds of one call, the mean of as many as fit."""
    step()
    began, stop, count = time.process_time(), time.monotonic() + seconds, 0
    while time.monotonic() < stop:
        step()
        count += 1
    return 1000 * (time.process_time() - began) / count


if __name__ == "__main__":
    main()
