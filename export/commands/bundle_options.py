"""The options of every command that writes a new bundle."""

import argparse
from pathlib import Path

from gaussport.export.wishes import DEFAULT_MAX_BATCH


def add_bundle_arguments(parser: argparse.ArgumentParser, named_after: str, printed: str) -> None:
    """`named_after` is where the name comes from when none is given, `printed` what `--json` prints."""
    parser.add_argument(
        "-o", "--output", type=Path, required=True, metavar="BUNDLE", help="the folder, or the .zip, to write"
    )
    parser.add_argument("--name", help=f"the model's name on the server (default: {named_after})")
    parser.add_argument("--labels", type=Path, metavar="FILE", help="class labels, one a line or a JSON list")
    parser.add_argument(
        "--max-batch",
        type=int,
        default=DEFAULT_MAX_BATCH,
        metavar="N",
        help="largest batch to prove and serve (default: %(default)s)",
    )
    parser.add_argument(
        "--external-data", action="store_true", help="keep the weights beside the graph, as is done above 2 GB anyway"
    )
    parser.add_argument("--overwrite", action="store_true", help="replace the bundle at BUNDLE, in one step")
    parser.add_argument("--json", action="store_true", help=f"print {printed} as JSON")
