"""A bundle's model and its `explain.onnx` in one ONNX Runtime session on the CPU: pixels in, every layer's tensors out."""

import hashlib
import json
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from gaussport.errors import BundleError, ImageError, ServingError, TextError
from gaussport.export.bundle.explanation import METADATA_KEY
from gaussport.export.bundle.manifest import DATA_FILE, EXPLAIN_FILE, MODEL_FILE
from gaussport.export.bundle.store import Bundle
from gaussport.serving.cores import usable_cores
from gaussport.serving.explain.layer import Layer
from gaussport.serving.explain.operators import View, views
from gaussport.serving.predictions import NOT_FINITE
from gaussport.serving.providers import open_session


@dataclass(frozen=True)
class Explained:
    """One batch: logits [B, classes], and for each layer, in order, the tensors of the whole batch."""

    logits: NDArray[np.float32]
    layers: tuple[Layer, ...]

    def views(self, index: int) -> list[View]:
        """Every layer as it looked at picture `index`."""
        return [views()[layer.operator](layer, index) for layer in self.layers]


class Explainer:
    """Attributes: `manifest`; `layers`, the names of the layers that can be explained, in the order data meets them."""

    def __init__(self, bundle: Bundle, threads: int | None = None) -> None:
        """Raises a BundleError when the bundle has no `explain.onnx`, a ServingError when it cannot be run here."""
        self.manifest = bundle.manifest
        if EXPLAIN_FILE not in bundle.manifest.files:
            raise BundleError(
                f"{bundle.path} has no {EXPLAIN_FILE}: its attention is not Gaussian, or an older gaussport wrote it and "
                "it has to be exported again"
            )
        self._input, self._output = bundle.manifest.input.name, bundle.manifest.output.name
        dtype = bundle.manifest.input.dtype
        self._dtype = np.dtype(np.float32 if dtype == "bfloat16" else dtype)
        name = f"{EXPLAIN_FILE} of {bundle.path}"
        model, beside = (
            bundle.read(MODEL_FILE),
            {DATA_FILE: bundle.read(DATA_FILE)} if DATA_FILE in self.manifest.files else {},
        )
        whole = model + bundle.read(EXPLAIN_FILE)  # one protobuf appended to another: the fields of both
        if bundle.manifest.precision == "bf16":
            whole = _in_float32(whole, beside, name)
        self._session = open_session(whole, name, "cpu", {}, threads or usable_cores(), beside)
        self._described = _described(self._session.get_modelmeta().custom_metadata_map, name, model)
        self.layers = tuple(str(layer["name"]) for layer in self._described)

    def run(self, pixels: NDArray[np.float32]) -> Explained:
        """Explain pixels [B, C, height, width]."""
        return self.run_inputs({self._input: pixels})

    def run_inputs(self, inputs: Mapping[str, NDArray[Any]]) -> Explained:
        """Explain everything that the model reads, each [B, …], by name.

        Raises an ImageError or a TextError when the model's answer is not finite, which no attention explains."""
        names = [f"{layer['name']}/{output}" for layer in self._described for output in layer["outputs"]]
        pixels = inputs[self._input].astype(self._dtype, copy=False)
        logits, *given = self._session.run([self._output, *names], {**inputs, self._input: pixels})
        if not np.isfinite(logits).all():
            raise (TextError if self.manifest.takes_text else ImageError)(NOT_FINITE, "not_finite")
        tensors = dict(zip(names, given, strict=True))
        # Tokens of a text lie in one row.
        area = (1, pixels.shape[1]) if self.manifest.takes_text else self.manifest.preprocessing.size
        layers = tuple(
            Layer(
                layer["name"],
                layer["operator"],
                tuple(layer["grid"]) if layer["grid"] else None,
                area,
                layer["attributes"],
                {output: tensors[f"{layer['name']}/{output}"] for output in layer["outputs"]},
            )
            for layer in self._described
        )
        return Explained(np.asarray(logits, dtype=np.float32), layers)


def _in_float32(model: bytes, beside: Mapping[str, bytes], name: str) -> bytes:
    from google.protobuf.message import DecodeError, EncodeError

    from gaussport.serving.explain.widening import widened

    try:
        return widened(model, beside)
    except (DecodeError, EncodeError) as error:  # damaged, or more than a protobuf can hold
        raise ServingError(f"{name} cannot be explained in float32: {error}, explain the fp16 or fp32 bundle") from error


def _described(metadata: Mapping[str, str], name: str, model: bytes) -> list[dict[str, Any]]:
    """The layers that this gaussport can look at; those of operators that it does not know are passed over."""
    try:
        description = json.loads(metadata[METADATA_KEY])
        layers, weights = description["layers"], description["model_sha256"]
    except (KeyError, ValueError):
        raise BundleError(f"{name} does not say which layers it explains: export the bundle again") from None
    if weights != hashlib.sha256(model).hexdigest():
        raise BundleError(f"{name} was made for another {MODEL_FILE} than the one beside it: export the bundle again")
    return [layer for layer in layers if layer["operator"] in views()]
