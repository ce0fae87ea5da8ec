"""When answers are wrong: where they go wrong first, in PyTorch's names, and what is to blame, in one sentence."""

import numpy as np
import onnx
import onnx.inliner

from gaussport.errors import GaussportError
from gaussport.export.comparison import Comparison
from gaussport.export.inputs import Inputs
from gaussport.export.onnx_export import export_onnx
from gaussport.export.proof import Proof
from gaussport.export.tolerance import FLOORS
from gaussport.export.verification.bisection import first_departure, graph_values
from gaussport.export.verification.layers import graph_layers
from gaussport.export.verification.subject import Subject
from gaussport.export.verification.suspects import not_finite_inputs, suspects

_MANY = 3  # how many suspects a sentence names


def layer_at_fault(subject: Subject, failed: set[str]) -> str | None:
    """Where the model goes astray, and the suspect. None when no failed check is about the model's answers."""
    if "pytorch" in failed and _failed(subject, "pytorch"):
        return _against_pytorch(subject, subject.proofs["pytorch"])
    if "batches" in failed:
        return _first_not_finite(subject)
    if "inlined" in failed:
        return next(
            (_between_forms(subject, subject.proofs[k]) for k in ("inlined", "engines") if _failed(subject, k)), None
        )
    return None


def _failed(subject: Subject, name: str) -> bool:
    return name in subject.proofs and bool(subject.proofs[name].failed)


def _against_pytorch(subject: Subject, proof: Proof) -> str:
    comparison = proof.failed[0]
    if comparison.subject in subject.engines[0]:
        return f"{comparison.subject} differs although the model that it was built from agrees: build the engine again"
    model, file, inputs = subject.model, subject.file, _inputs(subject, comparison)
    departure = first_departure(subject.classifier, model, file, inputs, subject.bundle.manifest.precision)
    if departure is None:
        return (
            "no layer departs when each is looked at on its own: errors add up slowly, or ONNX Runtime goes astray where it "
            "fuses layers"
        )
    parameters = {name: tensor.numpy() for name, tensor in subject.original.state_dict.items()}
    return f"{departure}; {_listed(suspects(departure, model, file, parameters, _new_export(subject), inputs))}"


def _first_not_finite(subject: Subject) -> str | None:
    """Without a reference: the first node that gives NaN or infinity although nothing that it reads is."""
    nodes = [node for node in subject.model.graph.node if node.output and node.output[0]]
    names = [node.output[0] for node in nodes]
    for question in subject.questions:
        values = graph_values(subject.model, subject.file, names, question.inputs)
        for node in nodes:
            found = values[node.output[0]]
            bad = int(np.count_nonzero(~np.isfinite(found)))
            if bad:
                suspect = not_finite_inputs(node, subject.model, subject.file)
                why = f"suspect: {suspect}" if suspect else f"all that it reads is finite (a {node.op_type})"
                where = f"{bad} of {found.size} numbers at batch {question.rows} ({question.probe})"
                return f"{node.name or node.op_type} is the first to give NaN or infinity, {where}; {why}"
    return None


def _between_forms(subject: Subject, proof: Proof) -> str:
    """The first value that differs between the model as written and with its functions inlined."""
    comparison = proof.failed[0]
    if comparison.subject in subject.engines[0]:
        return f"{comparison.subject} differs although the model that it was built from does not: build the engine again"
    inputs = _inputs(subject, comparison)
    flat = onnx.inliner.inline_local_functions(subject.model)
    layers = {value: name for name, value in graph_layers(subject.model.graph).items()}
    names = [node.output[0] for node in subject.model.graph.node]
    both = [graph_values(model, subject.file, names, inputs) for model in (subject.model, flat)]
    for node in subject.model.graph.node:
        one, other = (values[node.output[0]] for values in both)
        scale = float(np.abs(one).max(initial=0.0))
        if not np.abs(one - other).max(initial=0.0) <= FLOORS[subject.bundle.manifest.precision] * scale:
            suspect = f"the function body of {node.op_type}, or ONNX Runtime's own {node.op_type}"
            return (
                f"{layers.get(node.output[0], node.name)} is the first to differ from its inlined form; suspect: {suspect}"
            )
    return "no node differs when each is looked at on its own: ONNX Runtime goes astray where it fuses nodes"


def _inputs(subject: Subject, comparison: Comparison) -> Inputs:
    """The batch that a comparison was made on."""
    asked = (comparison.probe, comparison.layout, comparison.batch)
    return next(q.inputs for q in subject.questions if (q.probe, q.layout, q.rows) == asked)


def _new_export(subject: Subject) -> onnx.ModelProto | None:
    """The checkpoint exported once more, when this bundle was made in this way."""
    manifest = subject.bundle.manifest
    if manifest.precision != "fp32":  # a cast graph has nodes that no export of the checkpoint has
        return None
    try:
        return export_onnx(subject.classifier, subject.original.takes, manifest.opset)
    except GaussportError:
        return None


def _listed(blamed: list[str]) -> str:
    if not blamed:
        return "its weights are the checkpoint's, no cast overflows, and its nodes are those of a new export"
    more = f", and {len(blamed) - _MANY} more" if len(blamed) > _MANY else ""
    return f"suspect: {'; '.join(blamed[:_MANY])}{more}"
