"""The proof written down in the bundle: `report.json` for machines, `report.md` for people."""

import json
from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import asdict
from typing import Any

from gaussport.export.proof import Proof


def report_json(
    proof: Proof,
    graph: Mapping[str, Any],
    precision: Mapping[str, Any] | None = None,
    further: Mapping[str, Any] | None = None,
) -> str:
    """Everything that was measured, as JSON text; `further` measurements by their names."""
    document = {
        "output": proof.output,
        "tolerance": {**asdict(proof.tolerance), "reason": proof.tolerance.reason},
        "graph": dict(graph),
        "precision": dict(precision or {}),
        **(further or {}),
        "comparisons": [asdict(comparison) for comparison in proof.comparisons],
    }
    return json.dumps(document, indent=2, allow_nan=False) + "\n"


def proof_json(proof: Proof) -> dict[str, Any]:
    """Everything of one proof more."""
    return {
        "reference": proof.reference,
        "tolerance": {**asdict(proof.tolerance), "reason": proof.tolerance.reason},
        "comparisons": [asdict(comparison) for comparison in proof.comparisons],
    }


def proof_line(about: str, proof: Proof) -> str:
    """The verdict of one proof more, in a sentence."""
    reason = proof.tolerance.reason
    return f"{about.capitalize()}: at most {proof.worst.max_abs:.1e} from {proof.reference}, tolerance {reason}."


def report_markdown(name: str, proof: Proof, graph: Mapping[str, Any], precision: Sequence[str] = ()) -> str:
    """A page that a person reads: the verdict, one line per batch size, what the graph holds."""
    worst = proof.worst
    lines = [
        f"# {name}: PyTorch against ONNX Runtime",
        "",
        f"Every answer agrees. Worst difference in `{proof.output}`: {worst.max_abs:.1e} at batch {worst.batch}.",
        f"Tolerance: {proof.tolerance.reason}. No NaN, no infinity.",
        "",
        *precision,
        "| batch | model | max abs | max rel | top-1 agreement | not finite |",
        "|---:|---|---:|---:|---:|---:|",
    ]
    for row in summary(proof):
        lines.append(
            f"| {row['batch']} | {row['subject']} | {row['max_abs']:.1e} | {row['max_rel']:.1e} "
            f"| {row['top1_agreement']:.1%} | {row['not_finite']} |"
        )
    lines += ["", "| graph | |", "|---|---|", *(f"| {key} | {_text(value)} |" for key, value in graph.items()), ""]
    return "\n".join(lines)


def summary(proof: Proof) -> list[dict[str, Any]]:
    """The worst of all probes for each batch size and model."""
    groups = defaultdict(list)
    for comparison in proof.comparisons:
        groups[comparison.batch, comparison.subject].append(comparison)
    return [
        {
            "batch": batch,
            "subject": subject,
            "max_abs": max(c.max_abs for c in group),
            "max_rel": max(c.max_rel for c in group),
            "top1_agreement": sum(c.top1_agreement for c in group) / len(group),
            "not_finite": sum(c.not_finite for c in group),
        }
        for (batch, subject), group in groups.items()
    ]


def _text(value: object) -> str:
    if isinstance(value, Mapping):
        return ", ".join(f"{number} {key}" for key, number in value.items()) or "none"
    return f"{value:,}" if isinstance(value, int) else str(value)
