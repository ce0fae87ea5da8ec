"""Bundles small enough that an engine builds in a second, and TensorRT-RTX, which builds without a GPU."""

import shutil
from collections.abc import Callable
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import pytest
import torch

from gaussport.export.bundle.engines import CONTEXT_FILE, ENGINE_FILE, ENGINES_FOLDER, LAYERS_FILE, EngineRecord
from gaussport.export.bundle.revision import revising_bundle
from gaussport.export.bundle.store import open_bundle
from gaussport.export.pipeline import export_checkpoint
from gaussport.models.attention.gma import GMAConfig
from gaussport.models.attention.ssog import SSOGConfig
from gaussport.models.checkpoint import Checkpoint, write_checkpoint
from gaussport.models.classifier import Classifier
from gaussport.models.config import ClassifierConfig
from gaussport.models.image.preprocess import Preprocessing
from gaussport.models.presets import preset

MAX_BATCH = 8
CONFIGS: dict[str, ClassifierConfig] = {
    # Not square, so that a swap of rows and columns cannot hide.
    "ssog": preset("ssog-tiny", image_size=(24, 40)),
    "ssog-fixed": preset("ssog-tiny", attention=SSOGConfig(heads=2, steered=False), image_size=(40, 24)),
    "gma": preset("gma-tiny"),
    "gma-causal": preset("gma-tiny", attention=GMAConfig(heads=2, components=8, value_width=24, causal=True)),
    "dot": preset("dot-tiny"),
}


@pytest.fixture(scope="session")
def rtx() -> None:
    """Skips where TensorRT-RTX is not installed."""
    if find_spec("tensorrt_rtx") is None:
        pytest.skip("TensorRT-RTX is not installed (96 MB to fetch): pip install 'gaussport[rtx]'")


@pytest.fixture(scope="session")
def bundles(tmp_path_factory: pytest.TempPathFactory) -> Callable[[str], Path]:
    """`bundles(kind)`: an exported bundle, made once. Tests that change one copy it first."""
    folder = tmp_path_factory.mktemp("engine-bundles")

    def make(kind: str) -> Path:
        path = folder / kind
        if not path.exists():
            config = CONFIGS[kind]
            torch.manual_seed(0)
            preprocessing = Preprocessing(size=config.image_size, mean=(0.5,) * 3, std=(0.25,) * 3)
            labels = tuple(f"kind {index}" for index in range(config.classes))
            checkpoint = Checkpoint(config, Classifier(config).eval().state_dict(), preprocessing, labels)
            write_checkpoint(folder / f"{kind}.safetensors", checkpoint)
            export_checkpoint(folder / f"{kind}.safetensors", path, max_batch=MAX_BATCH)
        return path

    return make


@pytest.fixture
def copied(bundles: Callable[[str], Path], tmp_path: Path) -> Callable[[str], Path]:
    """`copied(kind)`: a bundle of the test's own."""

    def copy(kind: str) -> Path:
        return Path(shutil.copytree(bundles(kind), tmp_path / kind))

    return copy


@pytest.fixture
def engine_bundle(copied: Callable[[str], Path]) -> Path:
    return copied("dot")


@pytest.fixture
def engine_record() -> Callable[..., EngineRecord]:
    """`engine_record(bundle, **changes)`: writes an engine of no content into a bundle, as if it had been built."""

    def write(path: Path, **changes: Any) -> EngineRecord:
        fields: dict[str, Any] = {
            "builder": "tensorrt-rtx",
            "builder_version": "1.7.1.116",
            "architecture": 86,
            "precision": "fp32",
            "batches": (1, 8, 8),
            "model_sha256": open_bundle(path).manifest.model_sha256,
            "plugin_layers": 0,
        }
        record = EngineRecord.model_validate(fields | changes)
        with revising_bundle(path) as (draft, manifest):
            home = draft.folder / ENGINES_FOLDER / record.name
            home.mkdir(parents=True)
            for name in (ENGINE_FILE, CONTEXT_FILE, LAYERS_FILE):
                (home / name).write_bytes(name.encode())
            engines = {**manifest.engines, record.name: record}
            draft.finish(lambda files: manifest.model_copy(update={"engines": engines, "files": files}))
        return record

    return write
