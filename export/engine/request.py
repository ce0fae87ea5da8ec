"""What the parent process and the worker tell each other, as files in one folder."""

import json
from dataclasses import asdict, dataclass
from pathlib import Path

REQUEST, MODEL, ENGINE, LAYERS, ANSWER, ERROR, LOG = (
    "request.json", "model.onnx", "model.engine", "layers.json", "answer.json", "error.txt", "tensorrt.log",
)  # fmt: skip


@dataclass(frozen=True)
class Request:
    """One engine to build, from `model.onnx` in the same folder."""

    builder: str
    architecture: int
    precision: str
    batches: tuple[int, int, int]
    probes: tuple[int, ...]
    """Batch sizes at which the output's shape is inferred before the build."""
    plugin_nodes: tuple[tuple[str, str], ...]
    """Name and operator of each node that must become a plugin layer."""
    plugin_library: str | None
    timing_cache: str | None
    lengths: tuple[int, int, int] | None = None
    """Smallest, best and largest of every other axis that has any size: the tokens of a text."""

    def write(self, folder: Path) -> None:
        (folder / REQUEST).write_text(json.dumps(asdict(self)), encoding="utf-8")

    @classmethod
    def read(cls, folder: Path) -> "Request":
        fields = json.loads((folder / REQUEST).read_text(encoding="utf-8"))
        pairs = tuple((name, operator) for name, operator in fields.pop("plugin_nodes"))
        batches, probes, lengths = tuple(fields.pop("batches")), tuple(fields.pop("probes")), fields.pop("lengths", None)
        lengths = None if lengths is None else tuple(lengths)
        return cls(plugin_nodes=pairs, batches=batches, probes=probes, lengths=lengths, **fields)


@dataclass(frozen=True)
class Answer:
    """What the worker made."""

    builder_version: str
    plugin_layers: int
    summary: dict[str, int]
    warnings: tuple[str, ...]

    def write(self, folder: Path) -> None:
        (folder / ANSWER).write_text(json.dumps(asdict(self)), encoding="utf-8")

    @classmethod
    def read(cls, folder: Path) -> "Answer":
        fields = json.loads((folder / ANSWER).read_text(encoding="utf-8"))
        return cls(warnings=tuple(fields.pop("warnings")), **fields)
