"""Labelled pictures in a folder: root/label/picture, as `gaussport train` and `verify --data` take them."""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from numpy.typing import NDArray
from PIL import Image

from gaussport.errors import DataError


@dataclass(frozen=True)
class LabelledFiles:
    """`paths[i]` shows a picture of class `targets[i]`; paths are sorted."""

    root: Path
    paths: tuple[Path, ...]
    targets: NDArray[np.int64]

    def name(self, index: int) -> str:
        """What a report calls the picture: its path in the folder."""
        return str(self.paths[index].relative_to(self.root)).encode(errors="replace").decode()


def labelled_files(root: Path, labels: Sequence[str]) -> LabelledFiles:
    """Every picture in the folders of `root`, which are called as the model's labels; hidden files are left out.

    Raises:
        DataError: no such folder, no picture in it, or a folder that is none of the labels.
    """
    if not root.is_dir():
        fault = "is a file" if root.exists() else "does not exist"
        raise DataError(f"the picture folder {root} {fault}: give one laid out as root/label/picture")
    suffixes = Image.registered_extensions()
    try:
        files = sorted(path for path in root.glob("*/*") if path.suffix.lower() in suffixes and path.is_file())
    except OSError as error:
        raise DataError(f"the picture folder {root} cannot be read: {error.strerror or error}") from None
    files = [path for path in files if not path.name.startswith(".") and not path.parent.name.startswith(".")]
    if not files:
        raise DataError(f"{root} has no pictures in folders: lay it out as root/label/picture")
    known = {label: index for index, label in enumerate(labels)}
    unknown = next((path.parent.name for path in files if path.parent.name not in known), None)
    if unknown is not None:
        raise DataError(f"{root} has the class folder {unknown!r}, which is none of the model's labels: name it like one")
    return LabelledFiles(root, tuple(files), np.array([known[path.parent.name] for path in files], dtype=np.int64))
