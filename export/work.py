"""The steps of an export, by name: the heavy half of `pipeline`, imported when there is work to do."""

from collections import Counter
from collections.abc import Mapping, Sequence
from datetime import datetime
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import onnx.helper

from gaussport.export.bundle.manifest import REPORT_FILE, FileRecord, Manifest, TensorSpec
from gaussport.export.example_inputs import further_inputs_of
from gaussport.export.explanation.writing import constants_of, write_explanation
from gaussport.export.model_file import ModelFile, write_model
from gaussport.export.onnx_export import export_onnx
from gaussport.export.own_module import read_module, trained_module
from gaussport.export.precision.census import precision_of
from gaussport.export.precision.conversion import Conversion, convert
from gaussport.export.precision.judgement import check_sources, require_accuracy, require_proof
from gaussport.export.precision.record import PrecisionRecord, record_of
from gaussport.export.proof import Proof, prove_runners, remembered, sessions, sessions_in_turns
from gaussport.export.provenance import provenance_of
from gaussport.export.reduced_decoding import ReductionEffect, reduced_where_measured
from gaussport.export.report import proof_json, proof_line, report_json, report_markdown
from gaussport.export.sequence.step_graph import stream_spec, streams
from gaussport.export.sequence.stream_file import prove_padding, prove_stream, write_stream
from gaussport.export.sequence.tokenizer_file import tokenizer_files
from gaussport.export.size import size_said
from gaussport.export.trained import Trained, trained_classifier
from gaussport.models.checkpoint.reading import read_any_checkpoint
from gaussport.plugins import DOMAIN

__all__ = [
    "check_sources",
    "constants_of",
    "convert",
    "export_onnx",
    "finite",
    "further_inputs_of",
    "graph_summary",
    "manifest_of",
    "precision_of",
    "prove_padding",
    "prove_runners",
    "prove_stream",
    "read_any_checkpoint",
    "read_module",
    "record_of",
    "reduced_where_measured",
    "remembered",
    "require_accuracy",
    "require_proof",
    "sessions",
    "sessions_in_turns",
    "tensor_spec",
    "tokenizer_files",
    "trained_classifier",
    "trained_module",
    "write_explanation",
    "write_model",
    "write_reports",
    "write_stream",
]


def write_reports(
    folder: Path,
    name: str,
    proof: Proof,
    graph: dict[str, Any],
    precision: PrecisionRecord,
    reduction: ReductionEffect | None = None,
    beside: Mapping[str, Proof | None] | None = None,
) -> None:
    """Write `report.json` and `report.md`; `beside` has further proofs, where there are any, by what they are about."""
    further = {} if reduction is None else {"reduced decoding": reduction.as_json()}
    proofs = {about: other for about, other in (beside or {}).items() if other is not None}
    further |= {about: proof_json(other) for about, other in proofs.items()}
    (folder / REPORT_FILE).write_text(report_json(proof, graph, precision.as_json(), further), encoding="utf-8")
    lines = [] if reduction is None else [reduction.as_markdown(), ""]
    lines += [line for about, other in proofs.items() for line in (proof_line(about, other), "")]
    page = report_markdown(name, proof, graph, [*precision.as_markdown(), *lines])
    (folder / REPORT_FILE).with_suffix(".md").write_text(page, encoding="utf-8")


def graph_summary(
    model: onnx.ModelProto, written: ModelFile, parameters: Mapping[str, Sequence[int]] | None = None
) -> dict[str, Any]:
    """What the graph holds, for the report; with the shapes of the module's parameters, how much it grew beside them."""
    weights = sum(int(np.prod(tensor.dims)) for tensor in model.graph.initializer)
    beside = {f"{name} bytes": memoryview(content).nbytes for name, content in written.beside.items()}
    return {
        "opset": opset_of(model, ""),
        "ir version": model.ir_version,
        "file bytes": len(written.graph),
        **beside,
        **({} if parameters is None else {"size": size_said(model, _bytes(written), parameters)}),
        "stored numbers": weights,
        "nodes": len(model.graph.node),
        "custom nodes": dict(Counter(node.op_type for node in model.graph.node if node.domain == DOMAIN)),
    }


def _bytes(written: ModelFile) -> int:
    return len(written.graph) + sum(memoryview(content).nbytes for content in written.beside.values())


def manifest_of(
    trained: Trained,
    conversion: Conversion,
    name: str,
    max_batch: int,
    created: datetime,
    files: dict[str, FileRecord],
) -> Manifest:
    """The manifest of a proved model; names, axes, types, versions and precision are read from the graph itself."""
    model = conversion.model
    custom = opset_of(model, DOMAIN)
    return Manifest(
        name=name,
        family=trained.family,
        config=dict(trained.config),
        labels=trained.labels,
        preprocessing=trained.preprocessing,
        stream=stream_spec(trained.module) if streams(trained.module) else None,
        input=tensor_spec(model.graph.input[0]),
        further_inputs=trained.further_inputs,
        output=tensor_spec(model.graph.output[0]),
        max_batch=max_batch,
        opset=opset_of(model, "") or 0,
        operators={} if custom is None else {DOMAIN: custom},
        precision=precision_of(model),  # type: ignore[arg-type]  # one of its words
        kept_fp32=dict(conversion.kept),
        provenance=provenance_of(trained, created),
        metrics=finite(trained.metrics),
        files=files,
    )


def finite(metrics: Mapping[str, float]) -> dict[str, float]:
    """The metrics that are numbers: JSON has no NaN, and a metric that is none tells nothing."""
    return {key: number for key, number in metrics.items() if np.isfinite(number)}


def opset_of(model: onnx.ModelProto, domain: str) -> int | None:
    """The version of a domain that the model imports."""
    same = ("", "ai.onnx") if domain in ("", "ai.onnx") else (domain,)
    return next((entry.version for entry in model.opset_import if entry.domain in same), None)


def tensor_spec(value: onnx.ValueInfoProto) -> TensorSpec:
    """Name, type and axes of a graph's input or output."""
    tensor = value.type.tensor_type
    dtype = onnx.helper.tensor_dtype_to_np_dtype(tensor.elem_type).name
    axes = [axis.dim_param or axis.dim_value for axis in tensor.shape.dim]
    return TensorSpec.model_validate({"name": value.name, "dtype": dtype, "shape": axes})
