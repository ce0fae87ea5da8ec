"""`gaussport classify BUNDLE IMAGES…`: the same decoding, preprocessing and runtime as the server, without one.

A few pictures are answered as a table; with `-o` the answers to any number of them go to files, by a job that can be taken
up again.
"""

import argparse
import math
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from gaussport.export.bundle.store import Bundle
    from gaussport.serving.offline.formats import Count
    from gaussport.serving.offline.job import Job
    from gaussport.serving.settings import Settings


def add_arguments(parser: argparse.ArgumentParser) -> None:
    from gaussport.serving.setting_sources import add_flags

    parser.add_argument("bundle", type=Path, metavar="BUNDLE", help="a bundle folder or zip")
    parser.add_argument(
        "images", nargs="+", type=Path, metavar="IMAGE", help="pictures, folders of them, or with -o Parquet files of them"
    )
    parser.add_argument("--top-k", type=int, default=5, metavar="INT", help="labels for each picture (default: 5)")
    parser.add_argument("--json", action="store_true", help="write JSON for machines")
    job = parser.add_argument_group("many pictures")
    job.add_argument(
        "-o", "--output", type=Path, metavar="DIR", help="write the answers there, in parts; again: the parts that lack"
    )
    job.add_argument("--format", choices=("jsonl", "csv", "parquet"), default="jsonl", help="of the parts (default: jsonl)")
    job.add_argument("--part-size", type=int, default=1000, metavar="INT", help="pictures in a part (default: 1000)")
    job.add_argument("--image-column", metavar="NAME", help="where Parquet files have the pictures' bytes")
    job.add_argument("--name-column", metavar="NAME", help="where they have names for the answers (default: FILE#ROW)")
    add_flags(
        parser,
        *(
            "provider",
            "device_id",
            "tensorrt_engine",
            "threads",
            "decode_threads",
            "max_batch",
            "max_pixels",
            "max_side_ratio",
        ),
        *("engine", "ray_address", "replicas", "max_replicas", "replica_cpus", "replica_gpus"),
    )


def run(arguments: argparse.Namespace) -> int:
    from gaussport.errors import UsageError
    from gaussport.export.bundle.store import open_bundle
    from gaussport.serving.logs import silence_pillow
    from gaussport.serving.pictures_only import expect_pictures_suffice
    from gaussport.serving.setting_sources import from_arguments

    silence_pillow()
    for flag, value in (("--top-k", arguments.top_k), ("--part-size", arguments.part_size)):
        if value < 1:
            raise UsageError(f"{flag} is {value}: give at least 1")
    settings = from_arguments(arguments)
    bundle = open_bundle(arguments.bundle, check_hashes=False)
    expect_pictures_suffice(bundle.manifest, bundle.manifest.name)
    if arguments.output is not None:
        return _to_files(arguments, bundle, settings)
    if settings.engine != "plain":
        raise UsageError("--engine ray writes files: name a folder for them by -o")
    return _to_screen(arguments, bundle, settings)


def _to_screen(arguments: argparse.Namespace, bundle: "Bundle", settings: "Settings") -> int:
    from gaussport.errors import UsageError
    from gaussport.serving.client import read_picture
    from gaussport.serving.offline.batches import Classifier
    from gaussport.serving.offline.inputs import Item
    from gaussport.serving.report import pictures_in, show, with_progress

    paths = pictures_in(arguments.images)
    if not paths:
        raise UsageError("there are no pictures in the folders given: name files, or folders that hold some")
    classifier = Classifier(bundle, settings, arguments.top_k, len(paths))
    try:
        items = (Item(str(path), lambda path=path: read_picture(path)) for path in paths)  # type: ignore[misc]
        return show(list(with_progress(classifier.rows(items), len(paths))), arguments.json)
    finally:
        classifier.close()


def _to_files(arguments: argparse.Namespace, bundle: "Bundle", settings: "Settings") -> int:
    from gaussport.serving.offline.inputs import Columns
    from gaussport.serving.offline.job import Asked, job_in

    manifest = bundle.manifest
    asked = Asked(
        model=manifest.name,
        version=manifest.version,
        model_sha256=manifest.model_sha256,
        sources=tuple(str(path.absolute()) for path in arguments.images),
        columns=Columns(image=arguments.image_column, name=arguments.name_column),
        top_k=arguments.top_k,
        format=arguments.format,
        part_size=arguments.part_size,
    )
    with job_in(arguments.output, asked, [path.absolute() for path in arguments.images]) as job:
        began, before = time.monotonic(), job.done()
        pictures, unusable = before
        for found in _with_progress(job, before, _parts(job, bundle, settings)):
            pictures, unusable = pictures + found.pictures, unusable + found.unusable
        summary = job.finish(type(before)(pictures, unusable))
    seconds = time.monotonic() - began
    if arguments.json:
        import orjson

        ours = {"classified": pictures - before.pictures, "seconds": round(seconds, 3), "cores": _cores(settings)}
        sys.stdout.buffer.write(orjson.dumps(summary | ours | {"folder": str(arguments.output)}) + b"\n")
        return 0
    rate = f", {(pictures - before.pictures) / seconds:.0f}/s" if pictures > before.pictures else ""
    there = f", {before.pictures:,} of them were there already" if before.pictures else ""
    sys.stdout.write(f"{pictures:,} pictures in {arguments.output}{there}; {unusable:,} cannot be used{rate}\n")
    return 0


def _cores(settings: "Settings") -> int:
    """That the work was given, for `gaussport plan`."""
    from gaussport.serving.cores import usable_cores

    return math.ceil(settings.replicas * settings.replica_cpus) if settings.engine == "ray" else usable_cores()


def _parts(job: "Job", bundle: "Bundle", settings: "Settings") -> "Iterator[Count]":
    if settings.engine == "ray":
        from gaussport.serving.offline.on_ray import run_on_ray

        return run_on_ray(job, bundle.path, settings)
    from gaussport.serving.offline.here import run_here

    return run_here(job, bundle, settings)


def _with_progress(job: "Job", before: "Count", parts: "Iterator[Count]") -> "Iterator[Count]":
    from gaussport.serving.offline.progress import with_progress

    return with_progress(parts, before.pictures, job.pictures)
