"""Are the custom operators of the graph known here, and has each its body?"""

from collections import Counter

from gaussport.errors import BundleError
from gaussport.export.verification.subject import Subject
from gaussport.export.work import opset_of
from gaussport.plugins import DOMAIN, OPSET_VERSION, operators

_STANDARD = ("", "ai.onnx")


def operators_known(subject: Subject) -> str:
    """Domain imported, version and operators known, one function body for each, its own opset imported."""
    known = {operator.name for operator in operators()}
    bodies = {(f.domain, f.name, f.overload): f for f in subject.model.functions}
    for node in subject.nodes:
        if node.domain in _STANDARD:
            continue
        operator = f"{node.domain}::{node.op_type}"
        version = opset_of(subject.model, node.domain)
        if version is None:
            raise BundleError(f"{node.name} is a {operator}, but the model does not import the domain {node.domain}")
        if node.domain != DOMAIN or node.op_type not in known:
            raise BundleError(f"{node.name} is a {operator} version {version}, which is not one of {_listed(known)}")
        if version != OPSET_VERSION:
            raise BundleError(
                f"the model imports {DOMAIN} version {version}, but this gaussport knows version {OPSET_VERSION} only: "
                "upgrade gaussport or export the checkpoint again"
            )
        body = bodies.get((node.domain, node.op_type, node.overload))
        if body is None:
            raise BundleError(
                f"{node.name} is a {operator} version {version} without its function body: only runtimes with our plugin "
                "could run it, export the checkpoint again"
            )
        if not any(entry.domain in _STANDARD for entry in body.opset_import):
            raise BundleError(f"the function body of {operator} imports no opset of its own: export the checkpoint again")
    counts = Counter(node.op_type for node in subject.nodes if node.domain == DOMAIN)
    found = ", ".join(f"{number} {name}" for name, number in sorted(counts.items()))
    return f"{found} of {DOMAIN} version {OPSET_VERSION}, each with its body" if found else "no custom operators"


def _listed(names: set[str]) -> str:
    return ", ".join(f"{DOMAIN}::{name}" for name in sorted(names))
