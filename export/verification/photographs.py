"""Real pictures to compare models on: the photographs that scikit-learn ships, when it is installed.

Random numbers and synthetic scenes are in every proof; photographs only in `verify`, so that a bundle's own report does
not depend on what else is installed.
"""

from collections.abc import Iterator
from importlib.util import find_spec
from pathlib import Path

from PIL import Image

from gaussport.export.probes import Pixels
from gaussport.models.image.decode import decode
from gaussport.models.image.preprocess import Preprocessing, to_pixels


def photographs(preprocessing: Preprocessing) -> list[Pixels]:
    """Each photograph [C, height, width], whole and its four quarters; none without scikit-learn."""
    return [to_pixels(picture, preprocessing) for file in _files() for picture in _crops(_opened(file, preprocessing))]


def _files() -> list[Path]:
    """The files are found, not imported: scikit-learn takes seconds to import."""
    package = find_spec("sklearn")
    folders = [] if package is None else package.submodule_search_locations or []
    return sorted(file for folder in folders for file in (Path(folder) / "datasets" / "images").glob("*.jpg"))


def _opened(file: Path, preprocessing: Preprocessing) -> Image.Image:
    return decode(file.read_bytes(), preprocessing.background).rgb


def _crops(picture: Image.Image) -> Iterator[Image.Image]:
    yield picture
    width, height = picture.width // 2, picture.height // 2
    for left in (0, width):
        for top in (0, height):
            yield picture.crop((left, top, left + width, top + height))
