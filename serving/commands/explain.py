"""`gaussport explain BUNDLE PICTURES|TEXTS… -o OUT`: figures and a page of what each head looked at, or numbers as JSON."""

import argparse
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from gaussport.serving.explain.selection import Selection


def add_arguments(parser: argparse.ArgumentParser) -> None:
    from gaussport.serving.setting_sources import add_flags

    parser.add_argument("bundle", type=Path, metavar="BUNDLE", help="a bundle folder or zip")
    files = "pictures or texts, or folders of them (LABEL/FILE)"
    parser.add_argument("images", nargs="+", type=Path, metavar="FILE", help=files)
    parser.add_argument(
        "-o",
        "--output",
        type=Path,
        metavar="OUT",
        help="a folder for figures and page, or one .html page, or one .png or .svg figure of a picture's heads",
    )
    parser.add_argument(
        "--layer", action="append", default=[], metavar="LAYER", help="a layer's name or number, from 0; may be repeated"
    )
    parser.add_argument("--head", action="append", default=[], type=int, metavar="INT", help="a head; may be repeated")
    parser.add_argument("--cell", metavar="ROW,COLUMN", help="the query cell (default: the middle of the grid)")
    parser.add_argument("--format", choices=("png", "svg"), default="png", help="of the figures (default: png)")
    parser.add_argument(
        "--pictures",
        type=int,
        default=8,
        metavar="INT",
        help="draw the first so many pictures; all are counted (default: 8)",
    )
    parser.add_argument("--tokens", action="store_true", help="with --json: every token's tensors too")
    parser.add_argument("--json", action="store_true", help="write the numbers of every picture, as JSON for machines")
    add_flags(parser, "threads", "max_pixels", "max_side_ratio")


def run(arguments: argparse.Namespace) -> int:
    from gaussport.errors import UsageError
    from gaussport.export.bundle.store import open_bundle
    from gaussport.models.image.decode import ImageLimits
    from gaussport.serving.explain.explainer import Explainer
    from gaussport.serving.explain.output import Output, write_json
    from gaussport.serving.explain.session import ExplainSession
    from gaussport.serving.logs import silence_pillow
    from gaussport.serving.pictures_only import expect_pictures_suffice
    from gaussport.serving.report import pictures_in, with_progress
    from gaussport.serving.setting_sources import from_arguments

    silence_pillow()
    settings, selection = from_arguments(arguments), _selection(arguments)
    if arguments.pictures < 1:
        raise UsageError(f"--pictures is {arguments.pictures}: give at least 1")
    if arguments.output is None and not arguments.json:
        raise UsageError("say where the figures go with -o OUT, or ask for the numbers with --json")
    bundle = open_bundle(arguments.bundle, check_hashes=False)
    if bundle.manifest.takes_text:
        from gaussport.serving.explain.text.command import run as explain_texts

        return explain_texts(arguments, bundle, selection, settings.threads)
    paths = pictures_in(arguments.images)
    if not paths:
        raise UsageError("there are no pictures in the folders given: name files, or folders that hold some")
    output = None if arguments.output is None else Output.of(arguments.output, arguments.format, len(paths))
    expect_pictures_suffice(bundle.manifest, bundle.manifest.name)
    explainer = Explainer(bundle, settings.threads)
    selection.check_layers(explainer.layers)
    limits = ImageLimits(settings.max_pixels, settings.max_side_ratio)
    session = ExplainSession(explainer, paths, limits, selection, output, arguments.tokens, arguments.pictures)
    documents = list(with_progress(session.documents(), len(paths), "explaining"))
    folder = session.folder()
    if output is not None:
        output.write(f"What {explainer.manifest.name} looked at", documents, folder)
    if arguments.json:
        write_json(explainer.manifest.name, documents, folder)
    else:
        _tell(documents, arguments.output)
    return int(any("error" in document for document in documents))


def _tell(documents: "list[dict[str, Any]]", output: Path) -> None:
    for document in documents:
        if "error" in document:
            print(f"{document['image']}: {document['error']['message']}", file=sys.stderr)  # noqa: T201
    good = sum("error" not in document for document in documents)
    if good or len(documents) > 1:
        print(f"{output}  {good} of {len(documents)} pictures explained")  # noqa: T201


def _selection(arguments: argparse.Namespace) -> "Selection":
    from gaussport.serving.explain.selection import Selection, parse_cell

    cell = None if arguments.cell is None else parse_cell(arguments.cell)
    return Selection(tuple(arguments.layer), tuple(arguments.head), cell)
