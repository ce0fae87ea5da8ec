"""The options of `gaussport export` that choose a precision, and what it says of the one it found."""

import argparse
from typing import Any

from rich.markup import escape

from gaussport.export.calibration.thresholds import METHODS
from gaussport.export.commands.output import say
from gaussport.export.precision.wish import DEFAULT_PICTURES, PRECISIONS, PrecisionWish


def add_arguments(parser: argparse.ArgumentParser) -> None:
    group = parser.add_argument_group("precision")
    group.add_argument(
        "--precision", choices=PRECISIONS, default="fp32", help="what linear layers and attention compute in (%(default)s)"
    )
    group.add_argument(
        "--keep-fp32",
        nargs="+",
        action="extend",
        default=[],
        metavar="LAYER",
        help="layers that stay float32, e.g. blocks.3.mlp or residual",
    )
    group.add_argument(
        "--calibration-data", metavar="FOLDER", help=f"pictures or texts for int8, or mnist; {DEFAULT_PICTURES} are run"
    )
    group.add_argument(
        "--calibration", choices=METHODS, default="percentile", help="how int8 chooses its ranges (%(default)s)"
    )
    group.add_argument(
        "--data", metavar="FOLDER", help="labelled pictures or texts as label/file, or mnist: measure accuracy on them"
    )
    group.add_argument(
        "--max-drop", type=float, metavar="POINTS", help="refuse a model that loses more percentage points on --data"
    )


def wish_of(arguments: argparse.Namespace) -> PrecisionWish:
    """The wish that the arguments state."""
    return PrecisionWish(
        precision=arguments.precision,
        keep_fp32=tuple(arguments.keep_fp32),
        calibration_data=arguments.calibration_data,
        calibration_method=arguments.calibration,
        data=arguments.data,
        max_drop=arguments.max_drop,
    )


def say_precision(record: dict[str, Any]) -> None:
    """The precision that the graph has, what was kept and why, and what was measured."""
    layers = ", ".join(f"{number} {name}" for name, number in record["layers"].items())
    if record["precision"] != "fp32" or record["kept_fp32"]:
        say(f"precision {record['precision']}: of linear layers and attention operators {layers}")
    for name, reason in record["kept_fp32"].items():
        say(f"kept in float32: {escape(name)}, {escape(reason)}")
    for accuracy in record["accuracy"]:
        say(
            f"accuracy {escape(accuracy['subject'])}: {accuracy['model']:.2%} of {accuracy[accuracy['things']]} "
            f"{accuracy['things']}, PyTorch {accuracy['checkpoint']:.2%}, same answer for {accuracy['agreement']:.2%}"
        )
    unread = record["accuracy"][0]["unreadable"] if record["accuracy"] else ()
    if unread:
        things = record["accuracy"][0]["things"]
        say(f"[yellow]left out[/yellow] {len(unread):,} {things} that cannot be read, the first is {escape(unread[0])}")
    if record["note"]:
        say(f"[yellow]GPU only[/yellow] {escape(record['note'])}")
