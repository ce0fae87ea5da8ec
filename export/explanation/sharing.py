"""Let one model's tensors lie in another model's file: ONNX's external data may point anywhere, also into a protobuf.

A tensor's numbers are one run of bytes in a model file. Whoever reads `explain.onnx` from a folder with any runtime gets
them from `model.onnx` without knowing.
"""

import onnx

from gaussport.export.model_file import raw_bytes

_SMALLEST_BYTES = 128
"""Pointing somewhere costs about seventy; smaller tensors stay, as shape inference and constant folding read them."""


def share_weights(model: onnx.ModelProto, location: str, content: bytes) -> None:
    """Point each initializer of `model` to where its bytes lie in `content`, the file `location`, in place.

    Tensors that lie outside already stay there, and so do those whose bytes the file does not hold.
    """
    position = 0  # files hold tensors in the graph's order: each search begins where the last one ended
    for tensor in model.graph.initializer:
        if tensor.data_location == onnx.TensorProto.EXTERNAL:
            continue
        raw = raw_bytes(tensor)
        if len(raw) < _SMALLEST_BYTES:
            continue
        found = content.find(raw, position)
        if found < 0:
            found = content.find(raw)
        if found < 0:
            continue
        position = found + len(raw)
        _point(tensor, {"location": location, "offset": found, "length": len(raw)})


def _point(tensor: onnx.TensorProto, place: dict[str, object]) -> None:
    tensor.ClearField("raw_data")
    tensor.data_location = onnx.TensorProto.EXTERNAL
    del tensor.external_data[:]
    for key, value in place.items():
        tensor.external_data.add(key=key, value=str(value))
