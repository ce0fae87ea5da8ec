"""`gaussport query URL IMAGES…`: classify pictures through a running server, over several connections."""

import argparse
from pathlib import Path


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("url", metavar="URL", help="address of the server, as http://127.0.0.1:8000")
    parser.add_argument("images", nargs="+", type=Path, metavar="IMAGE", help="pictures, or folders of them")
    parser.add_argument("--model", metavar="NAME", help="which of the server's models (default: its first)")
    parser.add_argument("--top-k", type=int, default=5, metavar="INT", help="labels for each picture (default: 5)")
    parser.add_argument("--connections", type=int, default=4, metavar="INT", help="requests at once (default: 4)")
    parser.add_argument("--json", action="store_true", help="write JSON for machines")


def run(arguments: argparse.Namespace) -> int:
    from gaussport.errors import UsageError
    from gaussport.serving.client import Client
    from gaussport.serving.report import Row, pictures_in, show, with_progress

    for flag, value in (("--top-k", arguments.top_k), ("--connections", arguments.connections)):
        if value < 1:
            raise UsageError(f"{flag} is {value}: give at least 1")
    paths = pictures_in(arguments.images)
    if not paths:
        raise UsageError("there are no pictures in the folders given: name files, or folders that hold some")
    with Client(arguments.url, arguments.connections) as client:
        answers = client.classify(paths, arguments.top_k, arguments.model)
        rows = (
            Row(str(path), answer.predictions, answer.warnings, answer.error, answer.code)
            for path, answer in zip(paths, answers, strict=True)
        )
        return show(list(with_progress(rows, len(paths))), arguments.json)
