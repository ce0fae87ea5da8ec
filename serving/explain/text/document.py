"""One text explained: its windows run one after another, and every layer's responsibilities joined over the whole of it."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from gaussport.errors import TextError
from gaussport.models.text import Tokenization, encode, join, pieces, windows
from gaussport.serving.explain.explainer import Explained, Explainer
from gaussport.serving.explain.layer import Layer
from gaussport.serving.explain.operators import View, views
from gaussport.serving.predictions import best, probabilities

MOST_TOKENS = 1 << 17
"""Tokens of one document that are explained; the answer is about all of it."""
_TOP_K = 5
_OF_TOKENS = ("query_responsibility", "key_responsibility")


@dataclass(frozen=True)
class ExplainedText:
    """A text's tokens and what each stands for, what the model answered and how each layer looked at its tokens; or why it
    cannot be used. Where windows overlap, a token is as the first of them saw it."""

    path: Path
    tokens: NDArray[np.int64]
    pieces: Sequence[str] = ()
    windows: int = 0
    predictions: Sequence[dict[str, Any]] = ()
    views: tuple[View, ...] = ()
    error: TextError | None = None


def explained_texts(explainer: Explainer, paths: Sequence[Path], folder: Path | None) -> Iterator[ExplainedText]:
    """Each text in turn; `folder` is where the tokenizer lies, for a model that has one."""
    for path in paths:
        try:
            yield explained_text(explainer, _read(path), folder, path)
        except TextError as error:
            yield ExplainedText(path, np.empty(0, np.int64), error=error)


def explained_text(explainer: Explainer, content: bytes | str, folder: Path | None, path: Path) -> ExplainedText:
    """One text; `path` is what it is called. Raises a TextError when it cannot be used."""
    spec, labels = explainer.manifest.tokenization, explainer.manifest.labels
    tokens = encode(content, spec, folder)
    rows = windows(tokens, spec)
    parts: list[Explained] = []
    logits, covered, skips = [], 0, []
    for start, row in zip(_starts(len(rows), spec), rows, strict=True):
        explained = explainer.run_inputs({explainer.manifest.input.name: row[np.newaxis]})
        logits.append(explained.logits)
        if covered < MOST_TOKENS:
            parts.append(explained)
            skips.append(covered - start)
            covered = start + len(row)
    shares = join(np.concatenate([probabilities(row) for row in logits]), [len(row) for row in rows])
    joined = [_joined([part.layers[number] for part in parts], skips) for number in range(len(parts[0].layers))]
    return ExplainedText(
        path,
        tokens[:covered],
        pieces(content, spec, folder)[:covered],
        len(rows),
        best(shares, labels, min(_TOP_K, len(labels))),
        tuple(views()[layer.operator](layer, 0) for layer in joined),
    )


def _starts(count: int, spec: Tokenization) -> list[int]:
    return [index * spec.stride for index in range(count)]


def _joined(layers: Sequence[Layer], skips: Sequence[int]) -> Layer:
    """One layer over all windows, each without its first tokens, which the window before has. Masses are of the whole."""
    first = layers[0]
    tensors = dict(first.tensors)
    for name in _OF_TOKENS:
        tensors[name] = np.concatenate([layer.tensors[name][:, skip:] for layer, skip in zip(layers, skips, strict=True)], 1)
    keys = tensors["key_responsibility"]
    causal = bool(first.attributes.get("causal", 0))
    tensors["mass"] = keys.cumsum(1) if causal else keys.sum(1, keepdims=True)
    return Layer(first.name, first.operator, None, (1, keys.shape[1]), first.attributes, tensors)


def _read(path: Path) -> bytes:
    try:
        return path.read_bytes()
    except OSError as error:
        raise TextError(f"{path} cannot be read: {error.strerror or error}", "unreadable_text") from None
