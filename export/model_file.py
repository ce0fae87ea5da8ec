"""A model and its file."""

import onnx


def serialize(model: onnx.ModelProto) -> bytes:
    """The bytes of a model file, equal for equal models."""
    return bytes(model.SerializeToString(deterministic=True))
