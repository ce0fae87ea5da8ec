"""`gaussport classify BUNDLE IMAGES…`: the same decoding, preprocessing and runtime as the server, without one."""

import argparse
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from gaussport.export.bundle.store import Bundle
    from gaussport.models.image.decode import ImageLimits
    from gaussport.serving.report import Row
    from gaussport.serving.runtime import Runtime
    from gaussport.serving.settings import Settings


def add_arguments(parser: argparse.ArgumentParser) -> None:
    from gaussport.serving.setting_sources import add_flags

    parser.add_argument("bundle", type=Path, metavar="BUNDLE", help="a bundle folder or zip")
    parser.add_argument("images", nargs="+", type=Path, metavar="IMAGE", help="pictures, or folders of them")
    parser.add_argument("--top-k", type=int, default=5, metavar="INT", help="labels for each picture (default: 5)")
    parser.add_argument("--json", action="store_true", help="write JSON for machines")
    add_flags(parser, "provider", "threads", "max_batch", "max_pixels", "max_side_ratio")


def run(arguments: argparse.Namespace) -> int:
    from gaussport.errors import UsageError
    from gaussport.export.bundle.store import open_bundle
    from gaussport.serving.logs import silence_pillow
    from gaussport.serving.report import pictures_in, show, with_progress
    from gaussport.serving.setting_sources import from_arguments

    silence_pillow()
    if arguments.top_k < 1:
        raise UsageError(f"--top-k is {arguments.top_k}: give at least 1")
    settings = from_arguments(arguments)
    bundle = open_bundle(arguments.bundle, check_hashes=False)
    paths = pictures_in(arguments.images)
    if not paths:
        raise UsageError("there are no pictures in the folders given: name files, or folders that hold some")
    return show(list(with_progress(_rows(bundle, paths, arguments.top_k, settings), len(paths))), arguments.json)


def _rows(bundle: "Bundle", paths: Sequence[Path], top_k: int, settings: "Settings") -> "Iterator[Row]":
    """Batch by batch: a bad picture is a row with an error, and the others fill the batch."""
    from gaussport.models.image.decode import ImageLimits
    from gaussport.serving.runtime import Runtime

    runtime = Runtime(bundle, settings.provider, settings.threads)
    limits = ImageLimits(settings.max_pixels, settings.max_side_ratio)
    size = min(settings.max_batch or bundle.manifest.max_batch, bundle.manifest.max_batch)
    if runtime.fixed_batch is not None:
        size = 1
    for start in range(0, len(paths), size):
        yield from _batch(runtime, paths[start : start + size], limits, top_k)


def _batch(runtime: "Runtime", paths: Sequence[Path], limits: "ImageLimits", top_k: int) -> "list[Row]":
    import numpy as np

    from gaussport.errors import ImageError
    from gaussport.models.image.decode import Picture, decode
    from gaussport.models.image.preprocess import to_pixels
    from gaussport.serving.client import read_picture
    from gaussport.serving.predictions import best, probabilities
    from gaussport.serving.report import Row

    spec = runtime.manifest.preprocessing
    outcomes: list[Picture | ImageError] = []
    for path in paths:
        try:
            outcomes.append(decode(read_picture(path), spec.background, limits))
        except ImageError as error:
            outcomes.append(error)
    pixels = [to_pixels(outcome.rgb, spec) for outcome in outcomes if isinstance(outcome, Picture)]
    scores = iter(probabilities(runtime.run(np.stack(pixels))) if pixels else ())
    return [
        Row(str(path), best(next(scores), runtime.manifest.labels, top_k), list(outcome.warnings))
        if isinstance(outcome, Picture)
        else Row(str(path), error=str(outcome), code=outcome.code)
        for path, outcome in zip(paths, outcomes, strict=True)
    ]
