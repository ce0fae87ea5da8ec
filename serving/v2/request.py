"""An inference request off the wire: a JSON head, then the binary tensors it announces, byte for byte.

Nothing of it is trusted: each number is checked before it sizes or indexes anything. A field that is null counts as absent,
because clients made from a schema write out what they leave unset.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from gaussport.serving.body_limit import Body
from gaussport.serving.errors import RequestError
from gaussport.serving.front_door import json_object

_MOST_ROWS = 1 << 20


@dataclass(frozen=True)
class InputTensor:
    """One input as announced. Its content is `raw` (binary) or `data` (JSON)."""

    name: str
    datatype: str
    shape: tuple[int, ...]
    raw: memoryview | None
    data: Any


@dataclass(frozen=True)
class OutputRequest:
    """One output that the client asked for."""

    name: str
    binary: bool
    classes: int
    """How many labels of the classification extension; 0 asks for the tensor itself."""


@dataclass(frozen=True)
class InferRequest:
    """A whole request. No `outputs` asks for all of them."""

    id: str | None
    inputs: tuple[InputTensor, ...]
    outputs: tuple[OutputRequest, ...]
    binary_by_default: bool
    timeout_us: int
    priority: int
    parameters: Mapping[str, Any] = field(default_factory=dict)


def parse(body: Body, head_length: str | None) -> InferRequest:
    """Read a request; `head_length` is the Inference-Header-Content-Length, absent when all of it is JSON."""
    size = len(body) if head_length is None else _head_size(head_length, len(body))
    whole = memoryview(body)
    head, tail = json_object(whole[:size]), whole[size:]
    parameters = _parameters(head)
    binary = _flag(parameters, "binary_data_output")
    inputs: list[InputTensor] = []
    for entry in _entries(head, "inputs"):
        tensor, tail = _input(entry, tail)
        inputs.append(tensor)
    if len(tail):
        raise RequestError(f"{len(tail)} bytes follow the last binary tensor", "malformed_tensor")
    if not inputs:
        raise _malformed('"inputs" is empty: send one input')
    identity = head.get("id")
    if identity is not None and not isinstance(identity, str):
        raise _malformed('"id" must be a text')
    return InferRequest(
        identity,
        tuple(inputs),
        tuple(_output(entry, binary) for entry in _entries(head, "outputs")),
        binary,
        _number(parameters, "timeout"),
        _number(parameters, "priority"),
        parameters,
    )


def raw_row(body: Body, name: str, shape: Sequence[int]) -> InferRequest:
    """A request whose Inference-Header-Content-Length is 0: the body is one row of the FP32 input and nothing else, and
    the answer is binary."""
    tensor = InputTensor(name, "FP32", (1, *shape), memoryview(body), None)
    return InferRequest(None, (tensor,), (), True, 0, 0)


def _head_size(text: str, body_size: int) -> int:
    if not (text.isascii() and text.isdecimal() and len(text) < 16 and 0 < int(text) <= body_size):
        raise _malformed(f"Inference-Header-Content-Length must be between 1 and the body's {body_size} bytes")
    return int(text)


def _entries(head: Mapping[str, Any], key: str) -> list[dict[str, Any]]:
    entries = head.get(key)
    if entries is None:
        return []
    if not isinstance(entries, list) or not all(isinstance(entry, dict) for entry in entries):
        raise _malformed(f'"{key}" must be a list of objects')
    return entries


def _input(entry: Mapping[str, Any], tail: memoryview) -> tuple[InputTensor, memoryview]:
    """One input and what is left of the binary part behind it."""
    name, datatype, shape = entry.get("name"), entry.get("datatype"), entry.get("shape")
    if not isinstance(name, str) or not isinstance(datatype, str):
        raise _malformed("every input needs a name and a datatype")
    if not isinstance(shape, list) or not all(type(side) is int and 0 <= side <= _MOST_ROWS for side in shape):
        raise _malformed("the shape of an input must be a list of sizes that are not negative")
    size = _number(_parameters(entry), "binary_data_size", -1)
    data = entry.get("data")
    if size < 0:
        if data is None:
            raise _malformed("every input needs data, or the parameter binary_data_size")
        return InputTensor(name, datatype, tuple(shape), None, data), tail
    if data is not None:
        raise _malformed("an input has either data or binary_data_size")
    if size > len(tail):
        raise RequestError(f"an input announces {size} binary bytes and {len(tail)} are there", "malformed_tensor")
    return InputTensor(name, datatype, tuple(shape), tail[:size], None), tail[size:]


def _output(entry: Mapping[str, Any], binary_by_default: bool) -> OutputRequest:
    name, parameters = entry.get("name"), _parameters(entry)
    if not isinstance(name, str):
        raise _malformed("every requested output needs a name")
    binary = _flag(parameters, "binary_data", binary_by_default)
    return OutputRequest(name, binary, _number(parameters, "classification"))


def _parameters(entry: Mapping[str, Any]) -> dict[str, Any]:
    parameters = entry.get("parameters")
    if not isinstance(parameters, dict | None):
        raise _malformed('"parameters" must be an object')
    return {name: value for name, value in (parameters or {}).items() if value is not None}


def _flag(parameters: Mapping[str, Any], name: str, default: bool = False) -> bool:
    value = parameters.get(name, default)
    if not isinstance(value, bool):
        raise RequestError(f"the parameter {name} must be true or false", "bad_parameter")
    return value


def _number(parameters: Mapping[str, Any], name: str, default: int = 0) -> int:
    value = parameters.get(name, default)
    if name in parameters and (type(value) is not int or not 0 <= value < 1 << 53):
        raise RequestError(f"the parameter {name} must be a whole number that is not negative", "bad_parameter")
    return int(value)


def _malformed(message: str) -> RequestError:
    return RequestError(message, "malformed_request")
