"""What is verified: a bundle whose files match their hashes, its model parsed, and what the checks share."""

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from tempfile import TemporaryDirectory

import onnx
from google.protobuf.message import DecodeError  # type: ignore[import-untyped]

from gaussport.errors import BundleError
from gaussport.export.bundle.manifest import MODEL_FILE
from gaussport.export.bundle.store import Bundle
from gaussport.export.graph_check import all_nodes
from gaussport.export.probes import Probes
from gaussport.export.session import Session


@dataclass(frozen=True)
class Subject:
    """A bundle under verification; `checkpoint` and `config` are the files to compare it with, if any."""

    bundle: Bundle
    checkpoint: Path | None = None
    config: Path | None = None

    @cached_property
    def data(self) -> bytes:
        return self.bundle.read(MODEL_FILE)

    @cached_property
    def model(self) -> onnx.ModelProto:
        try:
            model = onnx.load_model_from_string(self.data)
        except DecodeError:
            raise BundleError(f"{MODEL_FILE} is not an ONNX model: export the bundle again") from None
        if not model.graph.node or not model.graph.input or not model.graph.output:
            raise BundleError(f"{MODEL_FILE} has no graph with an input, nodes and an output: export the bundle again")
        return model

    @cached_property
    def nodes(self) -> list[onnx.NodeProto]:
        return list(all_nodes(self.model.graph.node))

    @cached_property
    def session(self) -> Session:
        with self.on_disk() as path:
            return Session(self.data if path is None else str(path))

    @property
    def probes(self) -> Probes:
        return Probes.of(self.bundle.manifest.preprocessing)

    @property
    def external(self) -> list[onnx.TensorProto]:
        """Initializers that lie in another file."""
        return [t for t in self.model.graph.initializer if t.data_location == onnx.TensorProto.EXTERNAL]

    @contextmanager
    def on_disk(self) -> Iterator[Path | None]:
        """The model's path when it needs the files beside it, which a zip gives up for a moment; else None."""
        if not self.external:
            yield None
        elif self.bundle.path.is_dir():
            yield self.bundle.path / MODEL_FILE
        else:
            with TemporaryDirectory() as folder:
                entries = (entry for tensor in self.external for entry in tensor.external_data)
                for name in {MODEL_FILE} | {entry.value for entry in entries if entry.key == "location"}:
                    (Path(folder) / name).parent.mkdir(parents=True, exist_ok=True)
                    (Path(folder) / name).write_bytes(self.bundle.read(name))
                yield Path(folder) / MODEL_FILE
