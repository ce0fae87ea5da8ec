"""The options that say how to read a checkpoint, for every command that reads one."""

import argparse
from pathlib import Path

from gaussport.models.checkpoint.wishes import Wishes, image_size, renames, settings
from gaussport.models.image.wishes import INTERPOLATIONS, PictureWishes, numbers
from gaussport.models.text.wishes import LONG_DOCUMENTS, TextWishes


def add_reading_arguments(parser: argparse.ArgumentParser) -> None:
    weights = parser.add_argument_group("which weights, under which names")
    weights.add_argument(
        "--weights", metavar="raw|ema|KEY", help="which set of the file (default: the moving average where there is one)"
    )
    weights.add_argument(
        "--rename",
        action="append",
        default=[],
        metavar="OLD=NEW",
        help="change names by a regular expression; one that becomes empty is left out; may be repeated",
    )
    model = parser.add_argument_group("what the file does not say of the model")
    model.add_argument(
        "--config", type=Path, metavar="FILE", help="its configuration, JSON or YAML (default: config.json beside it)"
    )
    model.add_argument(
        "--set",
        action="append",
        default=[],
        metavar="FIELD=VALUE",
        help="one field, like heads=6 or gelu=tanh; may be repeated",
    )
    model.add_argument("--input-size", metavar="N|HxW", help="take pictures of another size than it was trained on")
    add_picture_arguments(parser)
    add_text_arguments(parser)


def add_text_arguments(parser: argparse.ArgumentParser) -> None:
    text = parser.add_argument_group("how its text becomes tokens")
    text.add_argument(
        "--tokenizer", type=Path, metavar="FILE", help="a tokenizer.json of the package tokenizers, which joins the bundle"
    )
    text.add_argument("--max-tokens", type=int, metavar="N", help="the longest window, to which the proof runs")
    text.add_argument(
        "--long-documents",
        choices=LONG_DOCUMENTS,
        help="read longer ones in windows whose answers are averaged, read their beginning only, or refuse them",
    )
    text.add_argument("--stride", type=int, metavar="N", help="a window begins every N tokens (default: half a window)")


def add_picture_arguments(parser: argparse.ArgumentParser) -> None:
    pictures = parser.add_argument_group("how its pictures were prepared")
    pictures.add_argument(
        "--preprocessing", type=Path, metavar="FILE", help="a preprocessor_config.json, a timm pretrained_cfg, or ours"
    )
    pictures.add_argument("--mean", metavar="R,G,B", help="taken off levels between 0 and 1, like 0.485,0.456,0.406")
    pictures.add_argument("--std", metavar="R,G,B", help="divided by after that")
    pictures.add_argument("--resize", metavar="N|HxW", help="the shorter side in pixels, or both sides, squeezed to that")
    pictures.add_argument("--crop", metavar="N|HxW", help="what is cut from the centre after that")
    pictures.add_argument("--interpolation", choices=INTERPOLATIONS, help="how Pillow resizes, with antialiasing")


def wishes_from(arguments: argparse.Namespace) -> Wishes:
    """The wishes in parsed arguments.

    Raises:
        UsageError: a value cannot be read.
        ConfigurationError: the preprocessing file cannot be.
    """
    return Wishes(
        weights=arguments.weights,
        rename=renames(arguments.rename),
        settings=settings(arguments.set),
        input_size=None if arguments.input_size is None else image_size(arguments.input_size),
        pictures=pictures_from(arguments),
        text=TextWishes(
            tokenizer=arguments.tokenizer,
            max_tokens=arguments.max_tokens,
            stride=arguments.stride,
            long_documents=arguments.long_documents,
        ),
    )


def pictures_from(arguments: argparse.Namespace) -> PictureWishes:
    """What parsed arguments say of pictures. Raises as `wishes_from`."""
    document = {}
    if arguments.preprocessing is not None:
        from gaussport.models.checkpoint.sidecar import read_sidecar

        document = dict(read_sidecar(arguments.preprocessing))
    resize = None if arguments.resize is None else image_size(arguments.resize)
    return PictureWishes(
        mean=None if arguments.mean is None else numbers(arguments.mean, "--mean"),
        std=None if arguments.std is None else numbers(arguments.std, "--std"),
        resize=resize[0] if resize and arguments.resize.strip().isdigit() else resize,
        crop=None if arguments.crop is None else image_size(arguments.crop),
        interpolation=arguments.interpolation,
        document=document,
        document_name="" if arguments.preprocessing is None else arguments.preprocessing.name,
    )
