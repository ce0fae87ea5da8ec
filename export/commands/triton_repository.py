"""`gaussport triton-repository BUNDLE -o DIR`: write the bundle as a model of NVIDIA's Triton Inference Server."""

import argparse
import shlex
from pathlib import Path

from rich.markup import escape

from gaussport.export.commands.output import say, shown, write_json
from gaussport.export.wishes import check_plain


def add_arguments(parser: argparse.ArgumentParser) -> None:
    from gaussport.export.triton_repository.wish import BACKENDS, PROVIDERS

    parser.add_argument("bundle", type=Path, metavar="BUNDLE", help="the bundle's folder or .zip")
    parser.add_argument("-o", "--output", type=Path, required=True, metavar="DIR", help="model repository, new or existing")
    parser.add_argument(
        "--backend",
        choices=BACKENDS,
        default="python",
        help="python runs the bundle as gaussport serve does, pictures and plugins included; the others are Triton's own "
        "(default: %(default)s)",
    )
    parser.add_argument("--provider", choices=PROVIDERS, default="cpu", help="what runs the model (default: %(default)s)")
    parser.add_argument("--max-batch", type=int, metavar="N", help="largest batch (default: the bundle's)")
    parser.add_argument("--max-delay-ms", type=float, default=2.0, metavar="MS", help="as of gaussport serve (default: 2)")
    parser.add_argument("--instances", type=int, default=1, metavar="N", help="copies of the model (default: 1)")
    parser.add_argument("--threads", type=int, metavar="N", help="threads of one inference (default: all usable cores)")
    parser.add_argument("--tensorrt-engine", metavar="NAME", help="which engine of the bundle, when several fit")
    parser.add_argument(
        "--python-path", metavar="DIR[:DIR]", help="where Triton's Python finds gaussport, if it does not by itself"
    )
    parser.add_argument("--overwrite", action="store_true", help="replace the model if the repository has it")
    parser.add_argument("--json", action="store_true", help="print what was written as JSON")


def run(arguments: argparse.Namespace) -> int:
    from gaussport.export.triton_repository.layout import write_model
    from gaussport.export.triton_repository.wish import Wish

    check_plain(arguments.bundle)
    wish = Wish(
        backend=arguments.backend,
        provider=arguments.provider,
        max_batch=arguments.max_batch,
        max_delay_ms=arguments.max_delay_ms,
        instances=arguments.instances,
        threads=arguments.threads,
        engine=arguments.tensorrt_engine,
        python_path=arguments.python_path,
    )
    written = write_model(arguments.bundle, arguments.output, wish, arguments.overwrite)
    if arguments.json:
        write_json({"model": shown(written.model), "max_batch": written.max_batch, "start": written.command})
        return 0
    say(f"{escape(shown(written.model))}  for Triton's {wish.backend} backend, batches to {written.max_batch}")
    say(f"next: {escape(shlex.join(written.command))}")
    return 0
