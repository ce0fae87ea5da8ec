"""The config.pbtxt of a model: inputs, outputs, batching, instances."""

import json
from collections.abc import Mapping

from gaussport.errors import ExportError
from gaussport.export.bundle.manifest import Manifest, TensorSpec
from gaussport.export.triton_repository.wish import Wish

LABELS_FILE = "labels.txt"
_TYPES = {"float32": "TYPE_FP32", "float16": "TYPE_FP16", "int64": "TYPE_INT64", "int32": "TYPE_INT32", "bool": "TYPE_BOOL"}
_PLATFORMS = {"python": 'backend: "python"', "onnxruntime": 'backend: "onnxruntime"', "tensorrt": 'backend: "tensorrt"'}


def config(manifest: Manifest, wish: Wish, max_batch: int, parameters: Mapping[str, str]) -> str:
    """Protocol-buffer text of Triton's ModelConfig."""
    python = wish.backend == "python"
    classes = str(len(manifest.labels))
    in_type, out_type = ("TYPE_FP32",) * 2 if python else (_type(manifest.input.dtype), _type(manifest.output.dtype))
    if manifest.takes_text:  # Triton batches requests of one length; it pads nothing
        inputs = [_tensor(manifest.input.name, in_type, "-1")]
    else:
        shape = ", ".join(map(str, manifest.preprocessing.tensor_shape))
        inputs = [_tensor(manifest.input.name, in_type, shape, "format: FORMAT_NCHW", *["optional: true"] * python)]
    inputs += [_beside(spec) for spec in manifest.further_inputs]
    outputs = [_tensor(manifest.output.name, out_type, classes, f'label_filename: "{LABELS_FILE}"')]
    if python:  # the picture itself, and the answer that people want
        inputs.append(_tensor("image", "TYPE_UINT8", "-1", "allow_ragged_batch: true", "optional: true"))
        outputs.append(_tensor("probabilities", "TYPE_FP32", classes, f'label_filename: "{LABELS_FILE}"'))
    lines = [
        f"# Written by gaussport triton-repository from the bundle {manifest.name}, version {manifest.version}.",
        f"name: {_text(manifest.name)}",
        _PLATFORMS[wish.backend],
        f"max_batch_size: {max_batch}",
        f"input [\n{_indented(inputs)}\n]",
        f"output [\n{_indented(outputs)}\n]",
        f"dynamic_batching {{ max_queue_delay_microseconds: {round(1000 * wish.max_delay_ms)} }}",
        f"instance_group [ {{ count: {wish.instances} kind: {'KIND_GPU' if wish.gpu else 'KIND_CPU'} }} ]",
        *(
            f"parameters {{ key: {_text(key)} value {{ string_value: {_text(value)} }} }}"
            for key, value in parameters.items()
        ),
    ]
    return "\n".join(lines) + "\n"


def _beside(spec: TensorSpec) -> str:
    """An input that has no picture in it. Triton knows no row without an axis: such rows are sent as [1]."""
    dims = ", ".join(map(str, spec.shape[1:]))
    return (
        _tensor(spec.name, _type(spec.dtype), dims)
        if dims
        else _tensor(spec.name, _type(spec.dtype), "1", "reshape: { shape: [ ] }")
    )


def _tensor(name: str, kind: str, dims: str, *more: str) -> str:
    return f"{{ {' '.join([f'name: {_text(name)}', f'data_type: {kind}', f'dims: [ {dims} ]', *more])} }}"


def _indented(tensors: list[str]) -> str:
    return ",\n".join(f"  {each}" for each in tensors)


def _type(dtype: str) -> str:
    if dtype not in _TYPES:
        raise ExportError(f"Triton's configuration has no type for {dtype}: use --backend python")
    return _TYPES[dtype]


def _text(value: str) -> str:
    """A quoted string; protocol-buffer text has JSON's escapes for ASCII, and takes other characters as they are."""
    return json.dumps(value, ensure_ascii=False)
