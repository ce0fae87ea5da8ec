"""Are the stored tensors named once, in a type that we ship, and inside the bundle?"""

from collections import Counter
from itertools import pairwise
from pathlib import PurePosixPath

import onnx

from gaussport.errors import BundleError
from gaussport.export.bundle.manifest import DATA_FILE
from gaussport.export.graph_check import doubles
from gaussport.export.model_file import tensor_bytes
from gaussport.export.verification.subject import Subject


def tensors_sound(subject: Subject) -> str:
    """No name twice, nothing in float64; external data listed in the manifest, inside the bundle, long enough."""
    initializers = subject.model.graph.initializer
    twice = [name for name, number in Counter(tensor.name for tensor in initializers).items() if number > 1]
    if twice:
        raise BundleError(f"the graph has two initializers of the name {twice[0]}: which one is read depends on the runtime")
    for name in doubles(subject.model.graph):
        raise BundleError(f"{name} is float64, which we never write: export the checkpoint again")
    _check_apart([_checked_span(subject, tensor) for tensor in subject.external])
    where = f", {len(subject.external)} of them in {DATA_FILE}" if subject.external else ""
    return f"{len(initializers)} initializers{where}"


def _check_apart(spans: list[tuple[int, int, str]]) -> None:
    """Equal weights are stored once by the graph, so two tensors in the same bytes are one that was moved."""
    for (_, end, name), (start, _, other) in pairwise(sorted(spans)):
        if start < end:
            raise BundleError(f"{name} and {other} share bytes of {DATA_FILE}: export the checkpoint again")


def _checked_span(subject: Subject, tensor: onnx.TensorProto) -> tuple[int, int, str]:
    """The tensor's first byte in the file, the byte behind its last, and its name."""
    fields = {entry.key: entry.value for entry in tensor.external_data}
    location = fields.get("location", "")
    path = PurePosixPath(location)
    if not location or path.is_absolute() or ".." in path.parts or "\\" in location or "\0" in location:
        raise BundleError(f"{tensor.name} has its data in {location!r}, outside the bundle: do not use this bundle")
    if location != DATA_FILE:  # the one file that the server hands to the runtime
        raise BundleError(f"{tensor.name} has its data in {location}, but weights lie in {DATA_FILE}: export again")
    record = subject.bundle.manifest.files.get(location)
    if record is None:
        raise BundleError(f"{tensor.name} has its data in {location}, which the bundle does not have: copy the whole bundle")
    needed = _bytes_of(tensor)
    offset, length = (_number(tensor, fields, key, default) for key, default in (("offset", 0), ("length", needed)))
    if length != needed or offset + length > record.bytes:
        raise BundleError(
            f"{tensor.name} needs {needed} bytes but claims {length} from byte {offset} of {location}, which has "
            f"{record.bytes}: export the checkpoint again"
        )
    return offset, offset + length, tensor.name


def _bytes_of(tensor: onnx.TensorProto) -> int:
    try:
        return tensor_bytes(tensor)
    except KeyError:
        raise BundleError(f"{tensor.name} is of the unknown type {tensor.data_type}: export the checkpoint again") from None


def _number(tensor: onnx.TensorProto, fields: dict[str, str], key: str, default: int) -> int:
    text = fields.get(key, str(default))
    if not text.isascii() or not text.isdigit() or len(text) > 18:
        raise BundleError(
            f"{tensor.name} has its data at {key} {text!r}, which is no number of bytes: do not use this bundle"
        )
    return int(text)
