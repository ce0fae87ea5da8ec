"""`gaussport serve BUNDLE…`: answer over HTTP until told to stop."""

import argparse
import sys
from pathlib import Path


def add_arguments(parser: argparse.ArgumentParser) -> None:
    from gaussport.serving.settings import add_flags

    parser.add_argument("bundles", nargs="+", type=Path, metavar="BUNDLE", help="bundle folders or zips to serve")
    add_flags(parser)
    parser.epilog = "Every option is also read from the environment, as GAUSSPORT_MAX_BATCH for --max-batch; a flag wins."


def run(arguments: argparse.Namespace) -> int:
    import logging

    from gaussport.serving.server import serve
    from gaussport.serving.settings import from_arguments

    logging.basicConfig(level=logging.WARNING, format="%(asctime)s %(levelname)s %(message)s")
    return serve(arguments.bundles, from_arguments(arguments), _announce)


def _announce(line: str) -> None:
    sys.stdout.write(f"{line}\n")
    sys.stdout.flush()
