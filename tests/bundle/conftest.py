"""A small, valid manifest, so that these tests are about files and not about models."""

from collections.abc import Callable
from datetime import UTC, datetime
from pathlib import Path

import pytest

from gaussport.export.bundle.manifest import FileRecord, Manifest, Provenance, TensorSpec
from gaussport.export.bundle.store import writing_bundle
from gaussport.models.image.preprocess import Preprocessing

MakeManifest = Callable[[dict[str, FileRecord]], Manifest]


@pytest.fixture
def manifest_of() -> MakeManifest:
    def make(files: dict[str, FileRecord]) -> Manifest:
        return Manifest(
            name="tiny",
            family="dot",
            config={},
            labels=("cat", "dog"),
            preprocessing=Preprocessing(size=(8, 8)),
            input=TensorSpec(name="pixels", dtype="float32", shape=("batch", 3, 8, 8)),
            output=TensorSpec(name="logits", dtype="float32", shape=("batch", 2)),
            max_batch=8,
            opset=20,
            operators={},
            precision="fp32",
            provenance=Provenance(
                checkpoint="tiny.safetensors",
                checkpoint_sha256="0" * 64,
                weights="raw",
                tools={},
                created=datetime(2026, 1, 1, tzinfo=UTC),
            ),
            files=files,
        )

    return make


@pytest.fixture
def write(manifest_of: MakeManifest) -> Callable[..., Path]:
    """Write a bundle with a `model.onnx` and a file in a sub-folder."""

    def write(destination: Path, model: bytes = b"weights", overwrite: bool = False) -> Path:
        with writing_bundle(destination, overwrite=overwrite) as draft:
            (draft.folder / "model.onnx").write_bytes(model)
            (draft.folder / "engines").mkdir()
            (draft.folder / "engines" / "plan").write_bytes(b"plan")
            draft.finish(manifest_of)
        return destination

    return write
