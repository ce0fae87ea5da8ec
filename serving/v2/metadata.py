"""What the protocol says of server and models, in the words that Triton's clients look for.

Metadata and configuration name the graph's own inputs and output, one each of a classifier of pictures, because NVIDIA's
image client refuses more. `image` or `text` (BYTES) and `probabilities` are answered all the same, and named in the
configuration's free-form parameters.
"""

from typing import Any

from gaussport import __version__
from gaussport.export.bundle.manifest import Manifest
from gaussport.serving.served_model import ServedModel
from gaussport.serving.v2.datatypes import DATATYPES

EXTENSIONS = (
    "binary_tensor_data",
    "classification",
    "model_configuration",
    "model_repository",
    "schedule_policy",
    "statistics",
)
PICTURES_INPUT = "image"
"""Encoded pictures, one BYTES element for each row."""
TEXTS_INPUT = "text"
"""Texts, one BYTES element for each row."""
PROBABILITIES = "probabilities"
"""The softmax of the model's own output."""


def server() -> dict[str, Any]:
    return {"name": "gaussport", "version": __version__, "extensions": list(EXTENSIONS)}


def model(served: ServedModel, versions: list[str]) -> dict[str, Any]:
    manifest = served.manifest
    return {
        "name": served.name,
        "versions": versions,
        "platform": "onnxruntime_onnx",
        "inputs": [_tensor(spec.name, DATATYPES[spec.dtype][0], spec.shape[1:]) for spec in manifest.inputs],
        "outputs": [_tensor(manifest.output.name, "FP32", (len(served.labels),))],
    }


def config(served: ServedModel) -> dict[str, Any]:
    manifest = served.manifest
    return {
        "name": served.name,
        "platform": "onnxruntime_onnx",
        "backend": "onnxruntime",
        "max_batch_size": served.max_batch,
        "input": [
            _config_input(manifest),
            *(
                {"name": spec.name, "data_type": f"TYPE_{DATATYPES[spec.dtype][0]}", "dims": list(spec.shape[1:])}
                for spec in manifest.further_inputs
            ),
        ],
        "output": [{"name": manifest.output.name, "data_type": "TYPE_FP32", "dims": [len(served.labels)]}],
        "dynamic_batching": {"max_queue_delay_microseconds": int(served.queue.limits.max_delay_ms * 1000)},
        "parameters": {name: {"string_value": text} for name, text in _parameters(served).items()},
    }


def _parameters(served: ServedModel) -> dict[str, str]:
    limits = served.queue.limits
    formed = {"batch": str(limits.max_batch), "batches_at_once": str(limits.at_once)}
    return {**served.runtime.facts, **formed, **_unlisted(served.manifest)}


def _config_input(manifest: Manifest) -> dict[str, Any]:
    name = manifest.input.name
    if manifest.takes_text:
        return {"name": name, "data_type": "TYPE_INT64", "dims": [-1]}
    dims = list(manifest.preprocessing.tensor_shape)
    return {"name": name, "data_type": "TYPE_FP32", "format": "FORMAT_NCHW", "dims": dims}


def _unlisted(manifest: Manifest) -> dict[str, str]:
    raw = TEXTS_INPUT if manifest.takes_text else PICTURES_INPUT
    return {"unlisted_input": f"{raw} BYTES [-1]", "unlisted_output": f"{PROBABILITIES} FP32"}


def _tensor(name: str, datatype: str, shape: tuple[int | str, ...]) -> dict[str, Any]:
    return {"name": name, "datatype": datatype, "shape": [-1, *(-1 if isinstance(axis, str) else axis for axis in shape)]}
