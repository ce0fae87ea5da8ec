"""`gaussport report BUNDLE --data FOLDER -o OUT`: how well a bundle does, as a page, a model card and JSON."""

import argparse
import json
import sys
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from gaussport.export.bundle.store import Bundle
    from gaussport.serving.model_report.labelled import LabelledFiles


_BATCH = 32
"""Pictures that are run together, when the settings do not say."""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    from gaussport.serving.setting_sources import add_flags

    parser.add_argument("bundle", type=Path, metavar="BUNDLE", help="a bundle folder or zip")
    parser.add_argument("--data", type=Path, required=True, metavar="FOLDER", help="labelled pictures, as label/picture")
    parser.add_argument(
        "-o", "--output", type=Path, required=True, metavar="OUT", help="folder for report.html, README.md and report.json"
    )
    parser.add_argument(
        "--against",
        type=Path,
        nargs="+",
        action="extend",
        default=[],
        metavar="BUNDLE",
        help="other bundles of the same labels, say other precisions, to compare it with",
    )
    parser.add_argument("--mistakes", type=int, default=24, metavar="INT", help="show the surest so many (default: 24)")
    parser.add_argument("--license", metavar="ID", help="the model's licence on its card, as apache-2.0")
    parser.add_argument("--json", action="store_true", help="print the numbers as JSON too")
    add_flags(parser, "provider", "device_id", "threads", "max_batch", "max_pixels", "max_side_ratio")


def run(arguments: argparse.Namespace) -> int:
    from gaussport.errors import UsageError
    from gaussport.export.bundle.store import open_bundle
    from gaussport.models.image.decode import ImageLimits
    from gaussport.serving.explain.drawing import require_matplotlib
    from gaussport.serving.logs import silence_pillow
    from gaussport.serving.model_report.answers import Asked
    from gaussport.serving.model_report.folder import check_folder, write_files
    from gaussport.serving.model_report.labelled import labelled_files
    from gaussport.serving.provider_options import ProviderOptions
    from gaussport.serving.report import with_progress
    from gaussport.serving.runtime import Runtime
    from gaussport.serving.setting_sources import from_arguments

    silence_pillow()
    settings = from_arguments(arguments)
    if arguments.mistakes < 0:
        raise UsageError(f"--mistakes is {arguments.mistakes}: give 0 or more")
    check_folder(arguments.output, [arguments.bundle, *arguments.against])
    require_matplotlib()
    bundles = [open_bundle(path, check_hashes=False) for path in (arguments.bundle, *arguments.against)]
    _expect_pictures(bundles)
    _expect_same_labels(bundles)
    files = labelled_files(arguments.data, bundles[0].manifest.labels)
    limits = ImageLimits(settings.max_pixels, settings.max_side_ratio)
    options = ProviderOptions(device_id=settings.device_id)
    asked = [
        Asked(Runtime(bundle, settings.provider, settings.threads, options), files, limits, settings.max_batch or _BATCH)
        for bundle in bundles
    ]
    from gaussport.serving.model_report.card import card
    from gaussport.serving.model_report.page import page
    from gaussport.serving.model_report.session import make_report

    report = make_report(bundles, asked, datetime.now(UTC), arguments.mistakes, settings.threads, with_progress)
    text = json.dumps(report.document, indent=2, ensure_ascii=False)
    contents = {
        **{f"{name}.png": content for name, content in report.figures.items()},
        "report.json": f"{text}\n".encode(),
        "README.md": card(report.document, report.figures, arguments.license).encode(),
        "report.html": page(report).encode(),
    }
    write_files(arguments.output, contents)
    if arguments.json:
        sys.stdout.write(f"{text}\n")
    else:
        _tell(report.document, arguments.output, files)
    return 0


def _expect_pictures(bundles: "list[Bundle]") -> None:
    from gaussport.errors import UsageError

    for bundle in bundles:
        if bundle.manifest.takes_text or bundle.manifest.further_inputs:
            what, cure = (
                ("text", "measure it with gaussport verify --data")
                if bundle.manifest.takes_text
                else ("more than pictures", "no labelled data with several inputs is read, measure it before the export")
            )
            raise UsageError(f"{bundle.path} reads {what}, and a report shows pictures: {cure}")


def _expect_same_labels(bundles: "list[Bundle]") -> None:
    from gaussport.errors import UsageError

    first, *others = bundles
    for other in others:
        if other.manifest.labels != first.manifest.labels:
            raise UsageError(
                f"{other.path} has other labels than {first.path}: compare models that answer the same question"
            )


def _tell(document: "dict[str, Any]", output: Path, files: "LabelledFiles") -> None:
    from gaussport.serving.model_report.words import percent, points, verdict, with_interval

    scores, data = document["scores"], document["data"]
    print(  # noqa: T201
        f"{document['model']['name']}: {with_interval(scores['accuracy'])} of {data['pictures']:,} pictures are right, "
        f"calibration error {scores['expected_calibration_error']:.4f}"
    )
    for entry in document["compared"]:
        print(  # noqa: T201
            f"beside {entry['model']} ({entry['precision']}): {points(entry['difference'])} points, same answer for "
            f"{percent(entry['agreement'])}, {verdict(entry)}"
        )
    if data["unreadable"]:
        name, why = next(iter(data["unreadable"].items()))
        left = f"left out: {len(data['unreadable']):,} of {len(files.paths):,} pictures cannot be read"
        print(f"{left}, the first is {name}: {why}", file=sys.stderr)  # noqa: T201
    print(f"{output / 'report.html'}  and README.md, report.json beside it")  # noqa: T201
