"""The pictures whose answer changed on one sheet, as the model saw them, each with its truth and both answers."""

from collections.abc import Sequence
from io import BytesIO

import numpy as np
from PIL import Image, ImageDraw, ImageFont

from gaussport.export.calibration.pictures import Pictures
from gaussport.export.precision.accuracy import NO_ANSWER
from gaussport.export.probes import Pixels
from gaussport.export.verification.measurement import Changed
from gaussport.models.image.preprocess import Preprocessing

MOST = 200
"""Pictures on a sheet, at most."""

_SIDE, _CAPTION, _GAP, _COLUMNS = 128, 44, 10, 6  # pixels, and pictures in a row
_PAPER, _INK, _WRONG, _RIGHT = "#ffffff", "#1b1f24", "#b42318", "#1a7f37"


def contact_sheet(changed: Sequence[Changed], pictures: Pictures, labels: tuple[str, ...], spec: Preprocessing) -> bytes:
    """A PNG of the first `MOST` changed pictures: the truth, then the reference's answer → the model's."""
    shown = changed[:MOST]
    columns = min(_COLUMNS, len(shown))
    rows = -(-len(shown) // columns)
    width, height = _SIDE + _GAP, _SIDE + _CAPTION + _GAP
    sheet = Image.new("RGB", (columns * width + _GAP, rows * height + _GAP), _PAPER)
    draw, font = ImageDraw.Draw(sheet), ImageFont.load_default(12)
    for place, change in enumerate(shown):
        left, top = _GAP + place % columns * width, _GAP + place // columns * height
        picture = as_seen(pictures.pixels(change.index), spec)
        picture.thumbnail((_SIDE, _SIDE))
        scaled = picture.resize(_fitted(picture.size), Image.Resampling.NEAREST)
        sheet.paste(scaled, (left + (_SIDE - scaled.width) // 2, top + (_SIDE - scaled.height) // 2))
        colour = _RIGHT if change.found == change.target else _WRONG
        reference, found = (_label(labels, answer) for answer in (change.reference, change.found))
        draw.text((left, top + _SIDE + 4), _cut(draw, font, _label(labels, change.target)), _INK, font)
        draw.text((left, top + _SIDE + 22), _cut(draw, font, f"{reference} > {found}"), colour, font)
    png = BytesIO()
    sheet.save(png, "PNG", optimize=True)
    return png.getvalue()


def as_seen(pixels: Pixels, spec: Preprocessing) -> Image.Image:
    """The picture that a tensor [C, height, width] was made from, after resizing and cropping."""
    mean, std = (np.asarray(numbers, np.float32).reshape(-1, 1, 1) for numbers in (spec.mean, spec.std))
    levels = np.clip(np.rint((pixels * std + mean) * 255), 0, 255).astype(np.uint8).transpose(1, 2, 0)
    return Image.fromarray(levels[..., 0] if levels.shape[-1] == 1 else levels).convert("RGB")


def _fitted(size: tuple[int, int]) -> tuple[int, int]:
    """Small pictures are enlarged by a whole number, so that their pixels stay square."""
    factor = max(1, _SIDE // max(size))
    return size[0] * factor, size[1] * factor


def _label(labels: tuple[str, ...], index: int) -> str:
    return "no answer" if index == NO_ANSWER else labels[index]


def _cut(draw: ImageDraw.ImageDraw, font: ImageFont.FreeTypeFont | ImageFont.ImageFont, text: str) -> str:
    """As much of one line as fits below a picture."""
    text = " ".join(text.split())[: _SIDE // 2]  # no letter is narrower than two pixels, and measuring takes its time
    if draw.textlength(text, font) <= _SIDE:
        return text
    while text and draw.textlength(f"{text}…", font) > _SIDE:
        text = text[:-1]
    return f"{text}…"
