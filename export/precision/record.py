"""What a bundle says of its precision: read from its graph, with the layers that stayed behind and what was measured."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import onnx

from gaussport.export.precision.accuracy import Accuracy
from gaussport.export.precision.census import census, precision_of
from gaussport.export.precision.conversion import Conversion
from gaussport.export.precision.runners import NO_BF16, has_cpu_kernels


@dataclass(frozen=True)
class PrecisionRecord:
    """`precision` and `layers` (how many compute in each) are the graph's own; `metrics` are those of the checkpoint."""

    precision: str
    layers: Mapping[str, int]
    kept: Mapping[str, str]
    accuracy: Sequence[Accuracy]
    metrics: Mapping[str, float]
    note: str = ""

    def as_json(self) -> dict[str, Any]:
        measured = [{**accuracy.as_json(), "drop_points": accuracy.drop} for accuracy in self.accuracy]
        parts = {"precision": self.precision, "layers": dict(self.layers), "kept_fp32": dict(self.kept)}
        return {**parts, "accuracy": measured, "checkpoint_metrics": dict(self.metrics), "note": self.note}

    def as_markdown(self) -> list[str]:
        counted = ", ".join(f"{number} in {name}" for name, number in self.layers.items())
        lines = [f"Precision: {self.precision}; of linear layers and attention operators {counted}."]
        lines += [f"{self.note}."] if self.note else []
        if self.kept:
            lines += ["", "| kept in float32 | because |", "|---|---|"]
            lines += [f"| {name} | {reason} |" for name, reason in self.kept.items()]
        if self.accuracy:
            lines += [
                "",
                "| accuracy | of | checkpoint | model | drop (points) | same answer |",
                "|---|---:|---:|---:|---:|---:|",
            ]
            lines += [
                f"| {a.subject} | {a.pictures} {a.things} of {a.source} | {a.checkpoint:.2%} | {a.model:.2%} | "
                f"{a.drop:.2f} | {a.agreement:.2%} |"
                for a in self.accuracy
            ]
            unread = self.accuracy[0].unreadable
            lines += ["", f"Left out, for they cannot be read: {', '.join(unread)}."] if unread else []
        return [*lines, ""]


def record_of(conversion: Conversion, accuracy: Sequence[Accuracy], metrics: Mapping[str, float]) -> PrecisionRecord:
    """The record of a converted model."""
    model: onnx.ModelProto = conversion.model
    note = "" if has_cpu_kernels(model) else NO_BF16
    return PrecisionRecord(precision_of(model), census(model), conversion.kept, accuracy, metrics, note)
