"""Preprocessing files of other projects, read as our `Preprocessing`: what cannot be done exactly so is refused by name.

Known: our own JSON, Hugging Face's `preprocessor_config.json`, timm's `pretrained_cfg` and the data config it resolves to.
"""

from collections.abc import Mapping
from math import floor
from typing import Any

from gaussport.errors import ConfigurationError

_OWN = {"size", "resize_shorter", "resize", "crop_rounding", "channels", "background"}
_HUGGING_FACE = {"image_mean", "image_std", "do_normalize", "do_resize", "do_center_crop", "image_processor_type"}
_TIMM = {"crop_pct", "crop_mode", "input_size", "interpolation", "mean", "std"}
_INSIDE = ("preprocessing", "pretrained_cfg", "data_config", "data_cfg")
_RESAMPLING = {0: "nearest", 1: "lanczos", 2: "bilinear", 3: "bicubic"}  # Pillow's numbers


def preprocessing_fields(document: Mapping[str, Any], who: str) -> dict[str, Any]:
    """The fields of `Preprocessing` that the document states; `size` is missing where it leaves that to the model.

    Raises:
        ConfigurationError: the document is of no known form, or asks for something that we do not do.
    """
    for key in _INSIDE:
        if isinstance(document.get(key), Mapping):
            return preprocessing_fields(document[key], f"{who} ({key})")
    try:
        if document.keys() & _HUGGING_FACE:
            return _hugging_face(document, who)
        if document.keys() & _OWN or not document.keys() & _TIMM:
            return dict(document)
        return _timm(document, who)
    except (TypeError, ValueError, KeyError, IndexError, ZeroDivisionError, OverflowError):
        raise ConfigurationError(
            f"the preprocessing of {who} has a value of the wrong type: write its numbers as numbers"
        ) from None


def states_preprocessing(document: Mapping[str, Any]) -> bool:
    """Whether a configuration of any kind says how pictures are prepared."""
    nested = any(isinstance(document.get(key), Mapping) for key in _INSIDE)
    return (
        nested
        or document.get("preprocessing") is not None
        or bool(document.keys() & _HUGGING_FACE)
        or {"mean", "std"} <= document.keys()
    )


def _hugging_face(document: Mapping[str, Any], who: str) -> dict[str, Any]:
    found: dict[str, Any] = {}
    crop = _height_width(document.get("crop_size")) if document.get("do_center_crop") else None
    size = document.get("size")
    if not document.get("do_resize", True):
        raise ConfigurationError(f"{who} does not resize pictures (do_resize), which is always done here: state --resize")
    shorter = size.get("shortest_edge") if isinstance(size, Mapping) else size if crop and isinstance(size, int) else None
    if shorter is not None and document.get("crop_pct"):  # ConvNeXt: below 384 pixels its size is what is left of the crop
        crop = _height_width(int(shorter))
        shorter = int(shorter / float(document["crop_pct"])) if shorter < 384 else None
        found.update(size=crop, resize_shorter=shorter)
    elif shorter is not None:
        if crop is None:
            raise ConfigurationError(f"{who} resizes the shorter side and crops nothing, so that sizes vary: state --crop")
        found.update(size=crop, resize_shorter=int(shorter))
    elif size is not None:
        exact = _height_width(size)
        found["size"] = crop or exact
        if crop not in (None, exact):
            found["resize"] = exact
    if "resample" in document:
        found["interpolation"] = _interpolation(document["resample"], who)
    factor = float(document.get("rescale_factor", 1 / 255)) * 255 if document.get("do_rescale", True) else 255.0
    mean, std = document.get("image_mean"), document.get("image_std")
    if not document.get("do_normalize", True):
        mean, std = [0.0] * len(mean or "RGB"), [1.0] * len(std or "RGB")
    if mean is not None and std is not None:
        # x·factor − mean over std, as one mean and one std of x between 0 and 1
        found.update(mean=tuple(m / factor for m in _list(mean)), std=tuple(s / factor for s in _list(std)))
    return found


def _timm(document: Mapping[str, Any], who: str) -> dict[str, Any]:
    found: dict[str, Any] = {name: tuple(document[name]) for name in ("mean", "std") if name in document}
    if "interpolation" in document:
        found["interpolation"] = _interpolation(document["interpolation"], who)
    size = tuple(int(side) for side in document["input_size"][-2:]) if "input_size" in document else None
    mode, part = document.get("crop_mode") or "center", float(document.get("crop_pct") or 0.875)
    if mode not in ("center", "squash"):
        raise ConfigurationError(
            f"{who} prepares pictures with crop_mode {mode!r}, which is not done here: state --resize and --crop"
        )
    if size is not None:
        found.update(size=size, crop_rounding="nearest")  # torchvision's CenterCrop
        if mode == "squash" and part != 1.0:
            found["resize"] = tuple(floor(side / part) for side in size)
        if mode == "center":
            if size[0] != size[1]:
                raise ConfigurationError(
                    f"{who} crops {list(size)}, which is not square, by a crop_pct: state --resize and --crop"
                )
            found["resize_shorter"] = floor(size[0] / part)
    return found


def _interpolation(value: object, who: str) -> str:
    name = _RESAMPLING.get(value) if isinstance(value, int) else str(value).lower().removeprefix("interpolationmode.")
    if name not in _RESAMPLING.values():
        raise ConfigurationError(f"{who} resizes with {value!r}, which is not done here: state --interpolation")
    return str(name)


def _height_width(value: Any) -> tuple[int, int]:
    if isinstance(value, Mapping):
        return int(value["height"]), int(value["width"])
    sides = value if isinstance(value, list | tuple) else (value, value)
    return int(sides[0]), int(sides[1])


def _list(value: Any) -> list[float]:
    return [float(number) for number in (value if isinstance(value, list | tuple) else [value])]
