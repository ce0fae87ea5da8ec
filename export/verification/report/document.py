"""The report as one JSON object; the other forms are made from it and add nothing."""

import math
from collections import defaultdict
from collections.abc import Iterable, Sequence
from dataclasses import asdict
from datetime import datetime
from importlib.metadata import PackageNotFoundError, version
from typing import Any

from gaussport import __version__
from gaussport.export.comparison import Comparison
from gaussport.export.histogram import edges
from gaussport.export.proof import Proof
from gaussport.export.verification.checks import Finding
from gaussport.export.verification.measurement import Measurement
from gaussport.export.verification.subject import Subject

_TOOLS = ("numpy", "onnx", "onnxruntime", "torch")


def document_of(path: str, findings: Sequence[Finding], subject: Subject | None, time: datetime) -> dict[str, Any]:
    """Everything that verify found, with numbers that JSON can hold: what is not finite is null."""
    document: dict[str, Any] = {
        "bundle": path,
        "ok": all(finding.result == "ok" for finding in findings),
        "verified": time.isoformat(),
        "tools": {"gaussport": __version__, **_versions()},
        "findings": [asdict(finding) for finding in findings],
    }
    if subject is not None:
        manifest = subject.bundle.manifest
        document |= {
            "model": {"name": manifest.name, "family": manifest.family, "precision": manifest.precision},
            "checkpoint": None if subject.wish.checkpoint is None else subject.wish.checkpoint.name,
            "proofs": {name: _proof(proof) for name, proof in subject.proofs.items()},
            "not compared": [asdict(absent) for absent in (subject.engines[1] if subject.proofs else ())],
            "data": None if subject.measurement is None else _data(subject.measurement, manifest.labels),
        }
    plain: dict[str, Any] = _plain(document)
    return plain


def _proof(proof: Proof) -> dict[str, Any]:
    return {
        "reference": proof.reference,
        "output": proof.output,
        "tolerance": {**asdict(proof.tolerance), "reason": proof.tolerance.reason},
        "summary": _summary(proof.comparisons),
        "comparisons": [asdict(comparison) for comparison in proof.comparisons],
        "histograms": {name: asdict(histogram) for name, histogram in proof.histograms.items()},
        "histogram edges": list(edges()),
    }


def _summary(comparisons: Iterable[Comparison]) -> list[dict[str, Any]]:
    """The worst of all probes for each subject and batch size."""
    groups = defaultdict(list)
    for comparison in comparisons:
        groups[comparison.subject, comparison.batch].append(comparison)
    return [
        {
            "subject": subject,
            "batch": batch,
            "probes": len(group),
            "max_abs": max(c.max_abs for c in group),
            "max_rel": max(c.max_rel for c in group),
            "mean_abs": sum(c.mean_abs for c in group) / len(group),
            "cosine": min(c.cosine for c in group),
            "top1_agreement": sum(c.top1_agreement for c in group) / len(group),
            "top5_agreement": sum(c.top5_agreement for c in group) / len(group),
            "not_finite": sum(c.not_finite for c in group),
        }
        for (subject, batch), group in groups.items()
    ]


def _data(found: Measurement, labels: tuple[str, ...]) -> dict[str, Any]:
    """Counts stand under what was counted, `pictures` or `texts`, and a changed answer's sample under one of them."""

    def label(index: int) -> str | None:
        return None if index < 0 else labels[index]

    def counted(fields: dict[str, Any]) -> dict[str, Any]:
        return {found.things if key == "pictures" else key: value for key, value in fields.items()}

    return {
        **counted({key: value for key, value in asdict(found).items() if key not in ("changed", "classes")}),
        "drop": found.drop,
        "classes": [counted(asdict(score)) for score in found.classes],
        "confusion": [
            {"reference": label(before), "found": label(after), found.things: number}
            for before, after, number in found.confusion
        ],
        "changed": [
            {
                found.thing: change.name,
                "label": label(change.target),
                "reference": label(change.reference),
                "found": label(change.found),
                "tie": change.tie,
            }
            for change in found.changed
        ],
    }


def _plain(value: Any) -> Any:
    if isinstance(value, dict):
        return {key: _plain(entry) for key, entry in value.items()}
    if isinstance(value, list | tuple):
        return [_plain(entry) for entry in value]
    if isinstance(value, float):
        return value if math.isfinite(value) else None
    return value.encode(errors="replace").decode() if isinstance(value, str) else value  # file names may be no text


def _versions() -> dict[str, str]:
    found = {}
    for name in _TOOLS:
        try:
            found[name] = version(name)
        except PackageNotFoundError:  # onnxruntime goes by other names too: onnxruntime-gpu
            continue
    return found
