"""Take from a graph what only people and tools read: value types, names of nodes and of values in between."""

from collections.abc import Iterable
from itertools import count

import onnx

from gaussport.plugins import DOMAIN

_LETTERS = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ"


def slim(model: onnx.ModelProto) -> None:
    """Make the model as small as it can be without changing what it computes, in place.

    Inputs, outputs, initializers and our own nodes keep their names.
    """
    del model.graph.value_info[:]
    del model.metadata_props[:]
    kept = {entry.name for part in (model.graph.input, model.graph.output, model.graph.initializer) for entry in part}
    _shorten(model.graph.node, kept)
    for node in model.graph.node:
        node.doc_string = ""
        if node.domain != DOMAIN:
            node.name = ""
    for function in model.functions:
        _shorten(function.node, {*function.input, *function.output})


def _shorten(nodes: Iterable[onnx.NodeProto], kept: set[str]) -> None:
    """Give every value that is not `kept` a name of a letter or two. A graph inside a node sees these values, so nodes that
    have one keep all as it is."""
    nodes = list(nodes)
    if any(attribute.HasField("g") for node in nodes for attribute in node.attribute):
        return
    fresh = (name for number in count() if (name := _word(number)) not in kept)
    short: dict[str, str] = {}
    for node in nodes:
        for values in (node.input, node.output):
            for index, value in enumerate(values):
                if value and value not in kept:
                    if value not in short:
                        short[value] = next(fresh)
                    values[index] = short[value]


def _word(number: int) -> str:
    word = ""
    while True:
        number, digit = divmod(number, len(_LETTERS))
        word += _LETTERS[digit]
        if number == 0:
            return word
        number -= 1
