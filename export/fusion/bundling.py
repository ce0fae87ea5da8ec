"""The heavy half of `pipeline`: what a bundle says of a foreign model, the proof of the whole, the report."""

import json
from collections import Counter
from dataclasses import asdict, dataclass, replace
from datetime import datetime
from pathlib import Path

from gaussport.export.bundle.manifest import REPORT_FILE, FileRecord, Manifest, Provenance
from gaussport.export.explanation.writing import write_explanation
from gaussport.export.fusion.foreign_model import ForeignModel, read_foreign_model
from gaussport.export.fusion.rewriting import Fusion, fuse
from gaussport.export.graph_check import check_graph
from gaussport.export.model_file import ModelFile, serialize, write_model
from gaussport.export.precision.census import precision_of
from gaussport.export.probes import Probes
from gaussport.export.proof import Proof, Runs, agree, sessions
from gaussport.export.provenance import tools_used
from gaussport.export.report import report_json, summary
from gaussport.export.session import Session
from gaussport.export.tolerance import tolerance_for
from gaussport.export.work import graph_summary, opset_of, tensor_spec
from gaussport.models.checkpoint.description import labels_from, preprocessing_from
from gaussport.models.image.preprocess import Preprocessing
from gaussport.models.image.wishes import PictureWishes
from gaussport.plugins import DOMAIN

__all__ = [
    "check_fusion",
    "facts_of",
    "fuse",
    "manifest_of",
    "prove_fusion",
    "read_foreign_model",
    "write_explanation",
    "write_model",
    "write_reports",
]


@dataclass(frozen=True)
class Facts:
    """What a bundle says of a foreign model beside its graph; `assumed` names what nobody stated."""

    source: str
    sha256: str
    opset: int
    labels: tuple[str, ...]
    preprocessing: Preprocessing
    assumed: tuple[str, ...]


def facts_of(foreign: ForeignModel, path: Path, labels: list[str] | None, pictures: PictureWishes) -> Facts:
    """Labels and preprocessing that fit the model.

    Raises:
        ConfigurationError: those that were given do not.
    """
    channels, height, width = foreign.picture
    preprocessing, assumed = preprocessing_from(None, pictures, (height, width), channels, path.name)
    if labels is None:
        assumed = (*assumed, "labels")
    named = labels_from(labels, foreign.classes, path.name)
    return Facts(path.name, foreign.sha256, foreign.opset, named, preprocessing, assumed)


def check_fusion(fusion: Fusion) -> None:
    """Raise an ExportError unless the graph is one that we ship."""
    opset = opset_of(fusion.model, "")
    assert opset is not None
    check_graph(fusion.model, opset, Counter(fused.operator for fused in fusion.fused))


def prove_fusion(foreign: ForeignModel, written: ModelFile, preprocessing: Preprocessing, max_batch: int) -> Proof:
    """The bundle's model, with bodies and with them inlined, against the file as it came: as close as an export."""
    runners: dict[str, Runs] = {"the given model": Session(serialize(foreign.original)), **sessions(written)}
    graph = foreign.model.graph
    questions = Probes.of(preprocessing, name=graph.input[0].name).questions(max_batch)
    proof = agree(runners, questions, "fp32", graph.output[0].name)
    return replace(proof, tolerance=tolerance_for("fp32", proof.tolerance.scale))


def write_reports(folder: Path, name: str, proof: Proof, fusion: Fusion, written: ModelFile) -> None:
    """Write `report.json` and `report.md`."""
    graph = graph_summary(fusion.model, written)
    document = json.loads(report_json(proof, graph, {"precision": precision_of(fusion.model)}))
    document["fusion"] = {
        "fused": [asdict(fused) for fused in fusion.fused],
        "refused": [asdict(refusal) for refusal in fusion.refused],
    }
    text = json.dumps(document, indent=2, allow_nan=False) + "\n"
    (folder / REPORT_FILE).write_text(text, encoding="utf-8")
    (folder / REPORT_FILE).with_suffix(".md").write_text(_page(name, proof, fusion), encoding="utf-8")


def _page(name: str, proof: Proof, fusion: Fusion) -> str:
    lines = [
        f"# {name}: the given model against the fused one, in ONNX Runtime",
        "",
        f"Worst difference in `{proof.output}`: {proof.worst.max_abs:.1e}. Tolerance: {proof.tolerance.reason}.",
        "",
        "| operator | takes the place of | differs by |",
        "|---|---|---:|",
        *(f"| {fused.operator} | `{fused.value}` | {fused.error:.1e} |" for fused in fusion.fused),
        "",
        *(f"Refused: {refusal.reason}." for refusal in fusion.refused),
        "",
        "| batch | model | max abs | top-1 agreement |",
        "|---:|---|---:|---:|",
    ]
    lines += [
        f"| {row['batch']} | {row['subject']} | {row['max_abs']:.1e} | {row['top1_agreement']:.1%} |"
        for row in summary(proof)
    ]
    return "\n".join([*lines, ""])


def manifest_of(
    facts: Facts, fusion: Fusion, name: str, max_batch: int, created: datetime, files: dict[str, FileRecord]
) -> Manifest:
    """The manifest of a proved model; names, axes, types and versions are read from the graph itself."""
    model = fusion.model
    custom = opset_of(model, DOMAIN)
    found = Counter(fused.operator for fused in fusion.fused)
    return Manifest(
        name=name,
        family="module",
        config={"source": "onnx", "source_opset": facts.opset, "fused": dict(found)},
        labels=facts.labels,
        preprocessing=facts.preprocessing,
        input=tensor_spec(model.graph.input[0]),
        output=tensor_spec(model.graph.output[0]),
        max_batch=max_batch,
        opset=opset_of(model, "") or 0,
        operators={} if custom is None else {DOMAIN: custom},
        precision="fp32",
        provenance=Provenance(
            checkpoint=facts.source.encode(errors="replace").decode(),
            checkpoint_sha256=facts.sha256,
            weights="raw",
            stored_dtypes=("float32",),
            assumed=facts.assumed,
            tools=tools_used(),
            created=created,
        ),
        files=files,
    )
