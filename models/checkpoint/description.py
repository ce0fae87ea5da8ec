"""What stands beside the weights: preprocessing, labels, metrics, read against the configuration they must agree with."""

from collections.abc import Mapping
from typing import Any

from pydantic import ValidationError

from gaussport.errors import ConfigurationError
from gaussport.models.checkpoint.contents import AnyCheckpoint
from gaussport.models.image.forms import preprocessing_fields
from gaussport.models.image.preprocess import Preprocessing
from gaussport.models.image.wishes import PictureWishes
from gaussport.models.sequence.config import SequenceConfig
from gaussport.models.text.tokenization import BYTE_PAD, Tokenization
from gaussport.models.text.wishes import TextWishes

_FINITE = 1e300
WINDOW = 4
"""How many times its trained length a window of a sequence classifier has, unless somebody says otherwise: without a table
of positions nothing ends at the trained length, and the proof runs to here."""
TOKENIZER_FILE = "tokenizer.json"
"""What a bundle calls the tokenizer that somebody named."""
_PARTS = {
    "mean": ("mean",),
    "std": ("std",),
    "resize": ("resize_shorter", "size", "resize"),
    "interpolation": ("interpolation",),
}


def to_description(checkpoint: AnyCheckpoint) -> dict[str, Any]:
    """The JSON object that a checkpoint file keeps beside its tensors."""
    return {
        "config": checkpoint.config.to_json(),
        "preprocessing": checkpoint.preprocessing.model_dump(mode="json"),
        "labels": list(checkpoint.labels),
        "metrics": checkpoint.metrics,
    }


def preprocessing_from(
    document: object, wishes: PictureWishes, size: tuple[int, int] | None, channels: int | None, source: str
) -> tuple[Preprocessing, tuple[str, ...]]:
    """The preprocessing that `document`, or the caller's file before it, states, with the caller's values in their places;
    and which parts nobody stated, so that a default stands in: resizing to the model's size, bilinear, scaling to -1 … 1.

    `size` and `channels` are the model's, where they are known; what is stated must agree with them.

    Raises:
        ConfigurationError: it is not a preprocessing, or makes tensors of another shape than the model takes.
    """
    if wishes.document:
        document, source = wishes.document, wishes.document_name
    if document is not None and not isinstance(document, Mapping):
        raise ConfigurationError(f"the preprocessing of {source} is impossible: it is no object but {document!r:.40}")
    stated = _wished(preprocessing_fields(document, source) if document is not None else {}, wishes)
    assumed = () if document is not None else tuple(part for part, names in _PARTS.items() if not stated.keys() & set(names))
    if size is None and "size" not in stated:
        raise ConfigurationError(f"nobody says how large the pictures of {source} are: give --crop or --preprocessing FILE")
    count = channels or (len(stated["mean"]) if "mean" in stated and isinstance(stated["mean"], list | tuple) else 3)
    preprocessing = _validated({"size": size, **_channel_defaults(stated, count)}, source)
    wanted = (count, *(size or preprocessing.size))
    if preprocessing.tensor_shape != wanted:
        raise ConfigurationError(
            f"the preprocessing of {source} makes pictures of {preprocessing.tensor_shape} (channels, height, width) but "
            f"the configuration's channels and image_size ask for {wanted}"
        )
    if len(assumed) == len(_PARTS):
        return preprocessing, ("preprocessing",)
    return preprocessing, tuple(f"preprocessing.{part}" for part in assumed)


def tokenization_from(
    document: object, config: SequenceConfig, source: str, wishes: TextWishes | None = None
) -> tuple[Tokenization, tuple[str, ...]]:
    """The tokenization that `document` states, changed as wished, and what nobody stated: without one, a model of 257 tokens
    reads bytes, in windows of four times the length that it was trained at.

    Raises:
        ConfigurationError: it is not a tokenization, it has other tokens than the model, or it is needed and missing.
    """
    wishes = wishes or TextWishes()
    assumed = ("preprocessing",) if document is None and wishes.tokenizer is None else ()
    if document is None or wishes.tokenizer is not None:
        document = Tokenization.of_bytes(WINDOW * config.trained_length).model_dump()
        tokens = {"vocabulary": config.vocabulary, "pad": config.pad}
        if wishes.tokenizer is not None:
            document |= {"kind": "tokenizers", "file": TOKENIZER_FILE, **tokens}
        elif tokens != {"vocabulary": BYTE_PAD + 1, "pad": BYTE_PAD}:
            raise ConfigurationError(
                f"nobody says how text becomes the {config.vocabulary:,} tokens of {source}: give its tokenizer with "
                "--tokenizer FILE, or the object preprocessing beside its config with --config FILE"
            )
    try:
        tokenization = Tokenization.model_validate(document)
        tokenization = Tokenization.model_validate(wishes.applied(tokenization.model_dump()))
    except ValidationError as error:
        raise ConfigurationError(_first_fault(error, source)) from None
    if (tokenization.vocabulary, tokenization.pad) != (config.vocabulary, config.pad):
        raise ConfigurationError(
            f"the preprocessing of {source} makes tokens of a vocabulary of {tokenization.vocabulary} with "
            f"{tokenization.pad} as pad, but the configuration has {config.vocabulary} and {config.pad}"
        )
    return tokenization, assumed


def labels_from(document: object, classes: int, source: str) -> tuple[str, ...]:
    """One label for each class, in the order of the head's rows; numbers when there are none.

    Raises:
        ConfigurationError: they are not text, two are the same, or their count differs from the configured classes.
    """
    if document is None:
        return tuple(str(index) for index in range(classes))
    if not isinstance(document, list | tuple) or not all(isinstance(label, str) and label for label in document):
        raise ConfigurationError(f"the labels of {source} must be a list of names, none of them empty")
    if len(document) != classes:
        raise ConfigurationError(
            f"{len(document)} labels were given for {source}, but its head has {classes} classes: give one for each"
        )
    if len(set(document)) < len(document):
        twice = next(label for index, label in enumerate(document) if label in document[:index])
        first, second = [index for index, label in enumerate(document) if label == twice][:2]
        raise ConfigurationError(
            f"the labels of {source} name two classes {twice!r}, {first} and {second}: no answer could tell them apart"
        )
    return tuple(document)


def metrics_from(document: object) -> dict[str, float]:
    """The numbers among the stored metrics; anything else in there tells nothing about the weights."""
    entries = document.items() if isinstance(document, Mapping) else ()
    return {str(name): float(value) for name, value in entries if isinstance(value, int | float) and abs(value) <= _FINITE}


def _wished(fields: dict[str, Any], wishes: PictureWishes) -> dict[str, Any]:
    found = dict(fields)
    for name in ("mean", "std", "interpolation"):
        if getattr(wishes, name) is not None:
            found[name] = getattr(wishes, name)
    if wishes.crop is not None:
        found["size"] = wishes.crop
    if isinstance(wishes.resize, int):
        found.update(resize_shorter=wishes.resize, resize=None)
    elif wishes.resize is not None:
        cut = wishes.crop not in (None, wishes.resize)
        found.update(size=wishes.crop or wishes.resize, resize_shorter=None, resize=wishes.resize if cut else None)
    return found


def _channel_defaults(stated: dict[str, Any], count: int) -> dict[str, Any]:
    channels = {1: "L", 3: "RGB"}.get(count)
    if channels is None:
        raise ConfigurationError(f"channels is {count} but pictures have 1 (grey) or 3 (RGB)")
    return {"channels": channels, "mean": (0.5,) * count, "std": (0.5,) * count} | stated


def _validated(fields: dict[str, Any], source: str) -> Preprocessing:
    try:
        return Preprocessing.model_validate(fields)
    except ValidationError as error:
        raise ConfigurationError(_first_fault(error, source)) from None


def _first_fault(error: ValidationError, source: str) -> str:
    first = error.errors(include_url=False)[0]
    where = ".".join(map(str, ("preprocessing", *first["loc"])))
    return f"{where} of {source} is impossible: {first['msg'].removeprefix('Value error, ')}"
