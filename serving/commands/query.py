"""`gaussport query URL FILES…`: classify pictures or texts through a running server, over several connections."""

import argparse
import os
from pathlib import Path

KEY_VARIABLE = "GAUSSPORT_API_KEY"
_SHOWN = 40


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("url", metavar="URL", help="address of the server, as http://127.0.0.1:8000")
    parser.add_argument(
        "files", nargs="*", type=Path, metavar="FILE", help="what the model reads: pictures or texts, or folders of them"
    )
    parser.add_argument("--text", action="append", default=[], metavar="TEXT", help="a text itself; may be repeated")
    parser.add_argument("--model", metavar="NAME", help="which of the server's models (default: its first)")
    parser.add_argument("--top-k", type=int, default=5, metavar="INT", help="labels for each picture (default: 5)")
    parser.add_argument("--connections", type=int, default=4, metavar="INT", help="requests at once (default: 4)")
    parser.add_argument(
        "--timeout-s", type=float, default=60.0, metavar="NUM", help="patience with one answer (default: 60)"
    )
    parser.add_argument(
        "--resend",
        type=int,
        default=0,
        metavar="INT",
        help="send again what a server had when it was lost (default: 0 times)",
    )
    parser.add_argument("--ca", type=Path, metavar="FILE", help="certificates (PEM) to trust instead of the system's")
    parser.add_argument(
        "--api-key-file",
        type=Path,
        metavar="FILE",
        help=f"file that holds the API key (default: the variable {KEY_VARIABLE})",
    )
    parser.add_argument("--json", action="store_true", help="write JSON for machines")


def run(arguments: argparse.Namespace) -> int:
    from gaussport.errors import UsageError
    from gaussport.serving.client import Client
    from gaussport.serving.report import Row, pictures_in, show, with_progress

    for flag, value in (("--top-k", arguments.top_k), ("--connections", arguments.connections)):
        if value < 1:
            raise UsageError(f"{flag} is {value}: give at least 1")
    if not arguments.timeout_s > 0:
        raise UsageError(f"--timeout-s is {arguments.timeout_s}: give more than 0")
    if arguments.resend < 0:
        raise UsageError(f"--resend is {arguments.resend}: give 0 or more")
    paths = pictures_in(arguments.files)
    if arguments.files and not paths:
        raise UsageError("there are no files in the folders given: name files, or folders that hold some")
    asked: list[Path | str] = [*arguments.text, *paths]
    if not asked:
        raise UsageError("name files, or folders of them, or give a text by --text")
    options = {
        "connections": arguments.connections,
        "timeout_s": arguments.timeout_s,
        "resend": arguments.resend,
        "ca": arguments.ca,
        "api_key": _api_key(arguments.api_key_file),
    }
    with Client(arguments.url, **options) as client:
        answers = client.classify(asked, arguments.top_k, arguments.model)
        rows = (
            Row(_shown(each), answer.predictions, answer.warnings, answer.error, answer.code)
            for each, answer in zip(asked, answers, strict=True)
        )
        return show(list(with_progress(rows, len(asked))), arguments.json)


def _shown(each: Path | str) -> str:
    """A file by its name, a text by its beginning."""
    if isinstance(each, Path):
        return str(each)
    line = "".join(character if character.isprintable() else " " for character in each[: _SHOWN + 1])
    return f"{line[:_SHOWN]}…" if len(line) > _SHOWN else line


def _api_key(file: Path | None) -> str | None:
    """From a file or the environment, never from a flag: `ps` shows flags to everybody."""
    from gaussport.errors import UsageError

    if file is None:
        return os.environ.get(KEY_VARIABLE) or None
    try:
        lines = [line.strip() for line in file.read_text("ascii").splitlines()]
    except (OSError, UnicodeDecodeError) as error:
        raise UsageError(f"{file} cannot be read as an API key: give a text file with the key in one line") from error
    keys = [line for line in lines if line and not line.startswith("#")]
    if not keys:
        raise UsageError(f"{file} holds no API key: write it there, in one line")
    return keys[0]
