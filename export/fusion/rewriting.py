"""Fusion of foreign graphs: find our operators in a plain ONNX model, prove each, put them in, and say what was refused."""

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass

import onnx
import onnx_ir as ir
from onnx_ir.passes.common import RemoveUnusedNodesPass, TopologicalSortPass

from gaussport.errors import GaussportError
from gaussport.export.fusion import filter_rule, routing_rule
from gaussport.export.fusion.anchors import LAYOUTS, Anchor, Kind, find_anchors
from gaussport.export.fusion.candidate import Candidate, Match
from gaussport.export.fusion.indices import Splits, UnreadableError, fresh
from gaussport.export.fusion.notation import Group, Leaf, Terms
from gaussport.export.fusion.proof import Proof, activations_of
from gaussport.export.fusion.reading import READINGS, Axes, Reader, named, read_stable
from gaussport.export.fusion.sampling import Samples, sample
from gaussport.export.fusion.shares import with_shares
from gaussport.export.fusion.verdict import NotYet, RefusedError
from gaussport.export.fusion.writing import Written
from gaussport.plugins.onnx_registry import attach_bodies

Rule = Callable[[Candidate, Mapping[ir.Value, Anchor], Samples, Splits], Match]


@dataclass(frozen=True)
class Fused:
    """One operator that took the place of a part of the graph."""

    operator: str
    node: str
    value: str
    error: float
    """Largest difference from what it replaced, relative to the largest answer."""


@dataclass(frozen=True)
class Refusal:
    """Something that looks like an operator and is not one."""

    node: str
    value: str
    reason: str


@dataclass(frozen=True)
class Fusion:
    """A model and what was done to it."""

    model: onnx.ModelProto
    fused: tuple[Fused, ...]
    refused: tuple[Refusal, ...]


def fuse(proto: onnx.ModelProto) -> Fusion:
    """Replace every part of a plain ONNX model that is one of our operators, as `RULES` know them, and proved to be.

    The model has one float32 input [batch, …] with a dynamic batch and fixed other axes; its functions are inlined.

    Raises:
        ExportError: ONNX Runtime cannot run the model.
    """
    model = ir.from_proto(proto)
    samples = sample(model)
    anchors = find_anchors(model.graph, samples)
    matches, refusals = _search(model.graph, anchors, samples)
    proofs: list[Proof] = []
    for match in matches:
        try:
            proofs.append(Proof(model, match, Written(match, samples, _name(match)), samples))
        except RefusedError as error:
            refusals.append(_refusal(match, str(error)))
    activations = activations_of(model, (name for proof in proofs for name in proof.leaves)) if proofs else {}
    fused = []
    for proof in proofs:
        try:
            difference = proof.error(activations)
        except GaussportError as error:
            refusals.append(_refusal(proof.match, str(error)))
            continue
        _put_in(model.graph, proof.match, proof.written)
        node, value = proof.written.node.name or "", proof.match.value.name or ""
        fused.append(Fused(proof.match.operator.name, node, value, difference))
    if not fused:
        return Fusion(proto, (), tuple(refusals))
    TopologicalSortPass()(model)
    RemoveUnusedNodesPass()(model)
    model.ir_version = max(model.ir_version, 10)  # the first with overloads of functions
    result = ir.to_proto(model)
    attach_bodies(result)
    return Fusion(result, tuple(fused), tuple(refusals))


def _search(graph: ir.Graph, anchors: Mapping[ir.Value, Anchor], samples: Samples) -> tuple[list[Match], list[Refusal]]:
    """Ask the rules about every value after an anchor, in order; what follows a match is not asked about again."""
    live: set[ir.Value] = set()
    matches: list[Match] = []
    reasons: dict[Anchor, tuple[int, str, ir.Value]] = {}
    for node in graph:
        if node.op_type not in READINGS or not any(v in live or v in anchors for v in node.inputs if v is not None):
            continue
        value = node.outputs[0]
        if samples.constant(value) is not None or samples.shape(value) is None:
            continue
        live.add(value)
        splits = Splits()
        try:
            candidate = _read(value, live, anchors, samples, splits)
        except UnreadableError:
            continue
        for rule in RULES:
            try:
                matches.append(rule(candidate, anchors, samples, splits))
            except (NotYet, UnreadableError):
                continue
            except RefusedError as refusal:
                for anchor in _mentioned(candidate.terms, anchors):
                    if refusal.stage > reasons.get(anchor, (-1, "", value))[0]:
                        reasons[anchor] = (refusal.stage, str(refusal), value)
            else:
                live.discard(value)
                break
    used = {anchor for match in matches for anchor in match.anchors}
    return matches, _refusals(anchors, used, reasons)


def _read(
    value: ir.Value, live: set[ir.Value], anchors: Mapping[ir.Value, Anchor], samples: Samples, splits: Splits
) -> Candidate:
    """A value as it follows from the anchors before it; everything that does not follow from one is a leaf."""
    sizes = samples.shape(value)
    assert sizes is not None
    axes = tuple(fresh(size) for size in sizes)

    def make() -> tuple[Reader, Terms]:
        def look(inner: ir.Value, _axes: Axes) -> bool:
            node = inner.producer()
            return inner not in anchors and (inner in live or (node is not None and node.op_type in LAYOUTS))

        reader = Reader(samples, splits, look)
        return reader, reader.read(value, axes)

    reader, terms = read_stable(make, splits)
    resolved = tuple(splits.resolve(axis) for axis in axes)
    return Candidate(value, resolved, with_shares(terms, anchors), tuple(dict.fromkeys(reader.faults)))


def _mentioned(terms: Terms, anchors: Mapping[ir.Value, Anchor]) -> Iterator[Anchor]:
    for term in terms:
        for factor, _ in term.factors:
            if isinstance(factor, Leaf) and factor.value in anchors:
                yield anchors[factor.value]
            elif isinstance(factor, Group):
                yield from _mentioned(factor.terms, anchors)


def _refusals(
    anchors: Mapping[ir.Value, Anchor], used: set[Anchor], reasons: Mapping[Anchor, tuple[int, str, ir.Value]]
) -> list[Refusal]:
    """One for each reason, and one for each anchor that is left without any."""
    refusals: dict[str, Refusal] = {}
    for anchor in anchors.values():
        if anchor in used:
            continue
        if anchor in reasons:
            _, reason, value = reasons[anchor]
        elif anchor.fault:
            reason, value = f"{anchor.name}: {anchor.fault}", anchor.value
        elif anchor.kind is Kind.TABLE:
            continue  # a table of positive numbers that is nothing else
        else:
            reason, value = f"{anchor.name} makes {anchor.kind.value}, but what follows is not the operator", anchor.value
        producer = value.producer()
        node = "" if producer is None else named(producer)
        refusals.setdefault(reason, Refusal(node, value.name or "", reason))
    return list(refusals.values())


def _refusal(match: Match, reason: str) -> Refusal:
    producer = match.value.producer()
    assert producer is not None
    return Refusal(named(producer), match.value.name or "", f"{named(producer)}: {reason}")


def _name(match: Match) -> str:
    producer = match.value.producer()
    assert producer is not None
    return f"{producer.name or match.value.name}/{match.operator.name}"


def _put_in(graph: ir.Graph, match: Match, new: Written) -> None:
    """Insert the operator where the value was made, and let everybody read its output instead."""
    producer = match.value.producer()
    assert producer is not None
    for value in new.initializers:
        graph.register_initializer(value)
    graph.insert_after(producer, new.nodes)
    name = match.value.name
    match.value.replace_all_uses_with(new.output, replace_graph_outputs=True)
    if new.output.is_graph_output():
        match.value.name, new.output.name = f"{name}.replaced", name


RULES: tuple[Rule, ...] = (filter_rule.match, routing_rule.match)
