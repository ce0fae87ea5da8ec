"""`gaussport container BUNDLE -t NAME`: write a build context from which docker makes the image that serves the bundle."""

import argparse
import shlex
from pathlib import Path

from rich.console import Console
from rich.markup import escape

from gaussport.export.commands.output import say, shown, write_json
from gaussport.export.wishes import check_plain


def add_arguments(parser: argparse.ArgumentParser) -> None:
    from gaussport.export.container.context import TARGETS

    parser.add_argument("bundle", type=Path, metavar="BUNDLE", help="the bundle's folder or .zip")
    parser.add_argument(
        "-t", "--tag", required=True, metavar="NAME", help="the image's name, as mnist-ssog or team/mnist-ssog:1"
    )
    parser.add_argument("-o", "--output", type=Path, metavar="DIR", help="folder to write (default: NAME-context)")
    parser.add_argument("--target", choices=TARGETS, default="cpu", help="which image (default: %(default)s)")
    parser.add_argument("--overwrite", action="store_true", help="replace the build context if it exists")
    parser.add_argument("--json", action="store_true", help="print what was written as JSON")


def run(arguments: argparse.Namespace) -> int:
    from gaussport.export.container.context import check_image, default_folder, write_context

    check_image(arguments.tag)
    check_plain(arguments.bundle)
    folder = arguments.output or default_folder(arguments.tag)
    context = write_context(arguments.bundle, arguments.tag, folder, arguments.target, arguments.overwrite)
    if arguments.json:
        facts = {"context": shown(context.folder), "image": context.image, "target": context.target}
        write_json({**facts, "build": context.command, "warnings": context.warnings})
        return 0
    for warning in context.warnings:
        Console(stderr=True, highlight=False).print(f"[yellow]warning[/yellow] {escape(warning)}", soft_wrap=True)
    say(f"{escape(shown(folder))}  build context of {escape(context.image)}")
    say(f"next: {escape(shlex.join(context.command))}")
    return 0
