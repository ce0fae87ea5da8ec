"""Any folder of pictures laid out as root/class/picture, with a fixed part of each class held out."""

from pathlib import Path

from PIL import Image

from gaussport.errors import DataError, ImageError
from gaussport.models.data.dataset import DataSet, LabelledPictures
from gaussport.models.data.split import stratified
from gaussport.models.image.decode import decode

HELD_OUT_FRACTION = 0.2
SPLIT_SEED = 0
BACKGROUND = (255, 255, 255)
SUFFIXES = frozenset((".png", ".jpg", ".jpeg", ".webp", ".bmp", ".gif"))


def image_folder(root: Path) -> DataSet:
    """The pictures in `root/class/`, whose classes are the folders' names in sorted order. Hidden files and files that
    are no pictures by name are passed over; a picture that cannot be decoded is an error when it is opened.

    Raises:
        DataError: there is no such folder, fewer than two classes, or a class with fewer than two pictures.
    """
    files: list[Path] = []
    targets: list[int] = []
    classes = _classes(root)
    for target, folder in enumerate(classes):
        pictures = sorted(file for file in folder.iterdir() if _is_picture(file))
        if len(pictures) < 2:
            raise DataError(
                f"the class {folder.name} in {root} has {len(pictures)} pictures, but needs two: one is held out"
            )
        files += pictures
        targets += [target] * len(pictures)
    train, held_out = stratified(targets, HELD_OUT_FRACTION, SPLIT_SEED)
    return DataSet(
        name=root.resolve().name,
        labels=tuple(folder.name for folder in classes),
        train=_pictures([files[index] for index in train], [targets[index] for index in train]),
        held_out=_pictures([files[index] for index in held_out], [targets[index] for index in held_out]),
        background=BACKGROUND,
        mirrors=True,
    )


def _classes(root: Path) -> list[Path]:
    if not root.is_dir():
        fault = "is a file" if root.exists() else "does not exist"
        raise DataError(f"the data folder {root} {fault}: give `mnist` or a folder of root/class/picture.png")
    try:
        classes = sorted(entry for entry in root.iterdir() if entry.is_dir() and not entry.name.startswith("."))
    except OSError as error:
        raise DataError(f"the data folder {root} cannot be read: {(error.strerror or str(error)).lower()}") from None
    if len(classes) < 2:
        raise DataError(
            f"{root} has {len(classes)} class folders, but at least two are needed: lay it out as root/class/picture"
        )
    return classes


def _is_picture(file: Path) -> bool:
    return file.suffix.lower() in SUFFIXES and not file.name.startswith(".") and file.is_file()


def _pictures(files: list[Path], targets: list[int]) -> LabelledPictures:
    return LabelledPictures(tuple(targets), lambda index: _decoded(files[index]))


def _decoded(file: Path) -> Image.Image:
    try:
        return decode(file.read_bytes(), BACKGROUND).rgb
    except (ImageError, OSError) as error:
        raise DataError(f"{file} cannot be trained on: {error}") from None
