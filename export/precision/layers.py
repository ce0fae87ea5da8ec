"""Which nodes may compute in a narrow format, grouped into the layers that `--keep-fp32` names.

A layer is what PyTorch calls it: `blocks.3.mlp.0`, `blocks.3.attn` for the attention operator. The additions that carry
the residual stream form one layer of their own, `residual`: a stream that is wide in one place only has lost its digits.

Everything else stays float32: norms, softmax, the field of a Gaussian (tanh, exp, its sums and products), means, and the
head, whose logits decide.
"""

import re
from collections.abc import Collection, Iterable, Iterator, Sequence

import onnx_graphsurgeon as gs

from gaussport.errors import UsageError
from gaussport.plugins import DOMAIN

RESIDUAL = "residual"

_BY_TYPE = re.compile(r"[A-Z][A-Za-z]*(_\d+)*")
_NUMBER = re.compile(r"(_\d+)+$")

LINEAR = ("MatMul", "Gemm", "Conv")
_NARROW = (*LINEAR, "Gelu")
SHAPING = (
    "Reshape", "Transpose", "Flatten", "Squeeze", "Unsqueeze", "Slice", "Concat", "Split", "Gather", "Expand", "Identity",
)  # fmt: skip
"""These only move numbers: they take the type of what they move."""


def layers(graph: gs.Graph) -> dict[str, list[gs.Node]]:
    """The nodes that may be narrow, by layer, in the order of the graph."""
    head = {id(node) for node in _head(graph)}
    residual = {id(node) for node in _residual(graph)}
    found: dict[str, list[gs.Node]] = {}
    for node in graph.nodes:
        if id(node) in head:
            continue
        if id(node) in residual:
            found.setdefault(RESIDUAL, []).append(node)
        elif node.domain == DOMAIN or (not node.domain and (node.op in _NARROW or is_bias(node))):
            found.setdefault(layer_of(node), []).append(node)
    return found


def layer_of(node: gs.Node) -> str:
    """`blocks.0.mlp.0` for the node `blocks.0.mlp.0/MatMul`; a custom node's name is its layer's."""
    return str(node.name) if node.domain == DOMAIN else str(node.name).split("/")[0]


def named(graph: gs.Graph) -> set[str]:
    """The layers of every node of the graph, those that stay float32 in any precision (norms, head) among them."""
    return {layer_of(node) for node in graph.nodes} | layers(graph).keys()


def chosen(names: Iterable[str], known: Sequence[str], others: Collection[str] = ()) -> set[str]:
    """The layers of `known` that the names stand for; `blocks.0` stands for all inside it. Naming one of `others`, which
    are float32 anyway, changes nothing.

    Raises:
        UsageError: a name stands for no layer.
    """
    found: set[str] = set()
    for name in names:
        matching = _within(name, known)
        if not matching and not _within(name, others):
            raise UsageError(f"there is no layer {name!r} to keep in float32: the model has {_listed(known)}")
        found |= matching
    return found


def check_possible(names: Iterable[str], modules: Collection[str]) -> None:
    """Refuse, before a model with these modules is traced, a name that no layer of its graph can have.

    What the outermost module computes itself, the graph names by type (`MatMul`), and whatever a module does twice by a
    number (`attn_2`): `chosen` alone knows whether there is such a one.

    Raises:
        UsageError: a name is neither a module's nor such a one.
    """
    for name in names:
        known = name == RESIDUAL or _BY_TYPE.fullmatch(name) or name in modules or _NUMBER.sub("", name) in modules
        if not known:
            raise UsageError(f"there is no layer {name!r} to keep in float32: the model has {_listed(sorted(modules))}")


def _within(name: str, layers: Iterable[str]) -> set[str]:
    return {layer for layer in layers if layer == name or layer.startswith(f"{name}.")}


def is_bias(node: gs.Node) -> bool:
    """Whether a node adds a constant to the product of a linear layer."""
    if node.op != "Add":
        return False
    constants = [tensor for tensor in node.inputs if isinstance(tensor, gs.Constant)]
    return len(constants) == 1 and constants[0].values.ndim <= 1 and any(p.op in LINEAR for p in _producers(node))


def _head(graph: gs.Graph) -> Iterator[gs.Node]:
    """The linear layer that makes the logits, with its bias."""
    for output in graph.outputs:
        nodes = list(output.inputs)
        while nodes and (nodes[0].op in SHAPING or is_bias(nodes[0])):
            yield nodes[0]
            nodes = _producers(nodes[0])
        if nodes and nodes[0].op in LINEAR:
            yield nodes[0]


def _residual(graph: gs.Graph) -> Iterator[gs.Node]:
    """The additions that lead to a norm, up to the linear layers whose output they add."""
    waiting = [producer for node in graph.nodes if node.op == "LayerNormalization" for producer in _producers(node)[:1]]
    seen: set[int] = set()
    while waiting:
        node = waiting.pop()
        if id(node) in seen or node.op != "Add" or is_bias(node):
            continue
        seen.add(id(node))
        yield node
        waiting += _producers(node)


def _producers(node: gs.Node) -> list[gs.Node]:
    return [producer for tensor in node.inputs for producer in tensor.inputs]


def _listed(known: Sequence[str], most: int = 12) -> str:
    rest = f" and {len(known) - most} more" if len(known) > most else ""
    return ", ".join(known[:most]) + rest
