"""The pictures that a calibration or a measurement runs: `mnist`, or a folder of any depth."""

import hashlib
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from gaussport.errors import DataError, ImageError, UsageError
from gaussport.export.bundle.manifest import FurtherInput
from gaussport.export.precision.wish import MNIST
from gaussport.models.data.dataset import LabelledPictures
from gaussport.models.data.image_folder import SUFFIXES
from gaussport.models.image.prepare import prepare
from gaussport.models.image.preprocess import Preprocessing, to_pixels

ROWS = 32
"""Pictures in one batch."""


@dataclass(frozen=True)
class Pictures:
    """`pixels(i)` is the i-th picture as the model sees it, [C, height, width]; `targets` are classes, where known, and
    `names` what to call the pictures in a report."""

    source: str
    count: int
    pixels: Callable[[int], NDArray[np.float32]]
    targets: tuple[int, ...] = ()
    names: tuple[str, ...] = ()
    things: str = "pictures"

    @property
    def batch_count(self) -> int:
        return -(-self.count // ROWS)

    def batches(self) -> Iterator[NDArray[np.float32]]:
        """All pictures in order, [≤ ROWS, C, height, width] at a time."""
        for start in range(0, self.count, ROWS):
            yield np.stack([self.pixels(index) for index in range(start, min(start + ROWS, self.count))])

    def readable(self) -> Iterator[tuple[list[int], NDArray[np.float32], list[int]]]:
        """As `batches`, without the pictures that cannot be read: which are shown, their pixels, and which are not."""
        for start in range(0, self.count, ROWS):
            shown, pixels, unread = [], [], []
            for index in range(start, min(start + ROWS, self.count)):
                try:
                    pixels.append(self.pixels(index))
                    shown.append(index)
                except DataError:
                    unread.append(index)
            yield shown, np.stack(pixels) if pixels else np.empty((0,), np.float32), unread

    def digest(self) -> str:
        """The hash of every pixel: the same pictures give the same hash, wherever they lie."""
        found = hashlib.sha256()
        for batch in self.batches():
            found.update(batch.tobytes())
        return found.hexdigest()


def unlabelled(source: str, spec: Preprocessing, most: int) -> Pictures:
    """Pictures to calibrate with: the part of `mnist` that models are trained on, or every picture in and below a folder;
    `most` of them, spread evenly over the sorted list.

    Raises:
        DataError: there is no such folder, or no picture in it; when a picture is read, that it cannot be decoded.
    """
    if source == MNIST:
        train = _mnist(held_out=False)
        indices = spread(len(train), most)
        return Pictures(source, len(indices), lambda i: to_pixels(train.picture(indices[i]), spec))
    files = _files(Path(source))
    chosen = [files[index] for index in spread(len(files), most)]
    return Pictures(source, len(chosen), lambda i: _pixels(chosen[i], spec))


def labelled(source: str, spec: Preprocessing, labels: tuple[str, ...]) -> Pictures:
    """Pictures to measure with: the held-out part of `mnist`, or a folder laid out as root/label/picture.

    Raises:
        DataError: there is no such folder, no picture in it, or a class folder that is none of the model's labels.
    """
    if source == MNIST:
        held_out = _mnist(held_out=True)
        names = tuple(f"held-out digit {index}" for index in range(len(held_out)))
        return Pictures(source, len(held_out), lambda i: to_pixels(held_out.picture(i), spec), held_out.targets, names)
    root = Path(source)
    files = [file for file in _files(root) if len(file.relative_to(root).parts) == 2]
    known = {label: index for index, label in enumerate(labels)}
    unknown = sorted({file.parent.name for file in files} - set(known))
    if not files or unknown:
        fault = f"has the class folder {unknown[0]!r}, which is none of the model's labels" if unknown else "has no pictures"
        raise DataError(f"{source} {fault}: lay it out as root/label/picture")
    targets = tuple(known[file.parent.name] for file in files)
    names = tuple(str(file.relative_to(root)) for file in files)
    return Pictures(source, len(files), lambda i: _pixels(files[i], spec), targets, names)


def check_pictures_suffice(further: Sequence[FurtherInput], option: str = "--data") -> None:
    """Raise a UsageError when the model reads more than pictures, which is what `option` names."""
    if further:
        names = ", ".join(spec.name for spec in further)
        raise UsageError(
            f"{option} has pictures alone, and this model reads {names} beside them: leave {option} out, and measure "
            "accuracy with your own data through the server"
        )


def _mnist(held_out: bool) -> LabelledPictures:
    from gaussport.models.data.mnist import mnist

    digits = mnist()
    return digits.held_out if held_out else digits.train


def _files(root: Path) -> list[Path]:
    if not root.is_dir():
        fault = "is a file" if root.exists() else "does not exist"
        raise DataError(f"the picture folder {root} {fault}: give a folder of pictures, or {MNIST}")
    try:
        files = sorted(file for file in root.rglob("*") if file.suffix.lower() in SUFFIXES and file.is_file())
    except OSError as error:
        raise DataError(f"the picture folder {root} cannot be read: {error.strerror or error}") from None
    visible = [file for file in files if not any(part.startswith(".") for part in file.relative_to(root).parts)]
    if not visible:
        raise DataError(f"the picture folder {root} has no pictures: it needs files ending in {', '.join(sorted(SUFFIXES))}")
    return visible


def _pixels(file: Path, spec: Preprocessing) -> NDArray[np.float32]:
    try:
        return prepare(file.read_bytes(), spec).pixels
    except (ImageError, OSError) as error:
        raise DataError(f"{file} cannot be used: {error}") from None


def spread(count: int, most: int) -> list[int]:
    """`most` of `count` indices, evenly spaced; all when there are fewer."""
    return [index * count // most for index in range(most)] if count > most else list(range(count))
