"""What the trainer needs of a data set, wherever it comes from: labelled pictures, opened one at a time."""

from collections.abc import Callable, Iterator
from dataclasses import dataclass

from PIL import Image


@dataclass(frozen=True)
class LabelledPictures:
    """`targets` are class numbers, one a picture; `picture(i)` opens the i-th, upright, in sRGB or grey."""

    targets: tuple[int, ...]
    picture: Callable[[int], Image.Image]

    def __len__(self) -> int:
        return len(self.targets)

    def __iter__(self) -> Iterator[Image.Image]:
        return (self.picture(index) for index in range(len(self.targets)))


@dataclass(frozen=True)
class DataSet:
    """A fixed split: what is trained on, and what is held out and only ever measured.

    `background` is the sRGB colour that transparent pictures are composed over. `mirrors`: a mirrored picture still
    belongs to its class, as with most photographs and unlike digits.
    """

    name: str
    labels: tuple[str, ...]
    train: LabelledPictures
    held_out: LabelledPictures
    background: tuple[int, int, int]
    mirrors: bool
