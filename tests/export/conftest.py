"""Small models with weights far from their initialisation, exported once; and mutants of a good bundle."""

from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np
import onnx
import pytest
import torch
from numpy.typing import NDArray
from torch import nn

from gaussport.export import work
from gaussport.export.bundle.manifest import EXPLAIN_FILE, MODEL_FILE, FileRecord, Manifest
from gaussport.export.bundle.store import Bundle, open_bundle, writing_bundle
from gaussport.export.model_file import serialize
from gaussport.export.onnx_export import export_onnx, pictures_of
from gaussport.export.pipeline import export_checkpoint
from gaussport.export.session import Session
from gaussport.models.attention.gma import GMAConfig
from gaussport.models.attention.ssog import SSOGConfig
from gaussport.models.checkpoint import Checkpoint, write_checkpoint
from gaussport.models.classifier import Classifier
from gaussport.models.config import ClassifierConfig
from gaussport.models.image.preprocess import Preprocessing
from gaussport.models.presets import preset

CONFIGS: dict[str, ClassifierConfig] = {
    # Not square, so that a swap of rows and columns cannot hide.
    "ssog": preset("ssog-tiny", image_size=(24, 40)),
    "ssog fixed": preset("ssog-tiny", attention=SSOGConfig(heads=2, steered=False), image_size=(40, 24)),
    "gma": preset("gma-tiny"),
    "gma causal": preset("gma-tiny", attention=GMAConfig(heads=2, components=8, value_width=24, causal=True)),
    "dot": preset("dot-tiny"),
}
MAX_BATCH = 16


@pytest.fixture(autouse=True, scope="session")
def _one_thread() -> Iterator[None]:
    """ONNX Runtime follows. Two threads are slower when another job shares the cores."""
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(before)


def trained_like(config: ClassifierConfig, seed: int = 0) -> Classifier:
    """Every parameter moved at random: as initialised, probes and gates are zero and half of the graph does nothing."""
    draw = torch.Generator().manual_seed(seed)
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        model = Classifier(config)
    with torch.no_grad():
        for name, parameter in model.named_parameters():
            parameter.add_(torch.randn(parameter.shape, generator=draw), alpha=0.2)
            if name.endswith("_scale"):
                parameter.fill_(-0.5)
    return model.eval()


@dataclass(frozen=True)
class Exported:
    """A module and what became of it."""

    kind: str
    module: Classifier
    model: onnx.ModelProto
    data: bytes

    @property
    def shape(self) -> tuple[int, int, int]:
        return (self.module.config.channels, *self.module.config.image_size)

    def pixels(self, batch: int, seed: int = 0) -> NDArray[np.float32]:
        return np.random.default_rng(seed).standard_normal((batch, *self.shape), dtype=np.float32)

    def torch_answer(self, pixels: NDArray[np.float32]) -> NDArray[np.float32]:
        with torch.no_grad():
            return np.asarray(self.module(torch.from_numpy(np.ascontiguousarray(pixels))).numpy())

    def onnx_answer(self, pixels: NDArray[np.float32]) -> NDArray[np.float32]:
        return Session(self.data).run(pixels)


@pytest.fixture(scope="session")
def exports() -> Callable[[str], Exported]:
    """`exports(kind)`, each made once."""
    made: dict[str, Exported] = {}

    def get(kind: str) -> Exported:
        if kind not in made:
            module = trained_like(CONFIGS[kind])
            model = export_onnx(module, [pictures_of((module.config.channels, *module.config.image_size))])
            made[kind] = Exported(kind, module, model, serialize(model))
        return made[kind]

    return get


@pytest.fixture(params=list(CONFIGS))
def exported(request: pytest.FixtureRequest, exports: Callable[[str], Exported]) -> Exported:
    return exports(request.param)


def checkpoint_of(module: nn.Module, config: ClassifierConfig) -> Checkpoint:
    preprocessing = Preprocessing(size=config.image_size, mean=(0.4, 0.5, 0.6), std=(0.2, 0.3, 0.25))
    labels = tuple(f"kind {index}" for index in range(config.classes))
    return Checkpoint(config, module.state_dict(), preprocessing, labels, {"held_out_accuracy": 0.75, "loss": float("nan")})


@pytest.fixture(scope="session")
def checkpoint_path(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("checkpoint") / "tiny.v1.safetensors"
    write_checkpoint(path, checkpoint_of(trained_like(CONFIGS["ssog"]), CONFIGS["ssog"]))
    return path


@pytest.fixture(scope="session")
def bundle(tmp_path_factory: pytest.TempPathFactory, checkpoint_path: Path, exports: Callable[[str], Exported]) -> Bundle:
    """A good bundle, of the graph that `exports("ssog")` traced. Tests read it and write elsewhere."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(work, "export_onnx", lambda *_: exports("ssog").model)
        return export_checkpoint(checkpoint_path, tmp_path_factory.mktemp("bundle") / "tiny", max_batch=MAX_BATCH)


@pytest.fixture
def mutant(tmp_path: Path, bundle: Bundle) -> Callable[..., Path]:
    """`mutant(change, manifest=..., extra=...)`: the bundle with its model changed, files beside it, all hashes right."""

    def make(
        change: Callable[[onnx.ModelProto], object] = lambda model: None,
        manifest: Callable[[Manifest], Manifest] = lambda manifest: manifest,
        extra: dict[str, bytes] | None = None,
    ) -> Path:
        model = onnx.load_model_from_string(bundle.read(MODEL_FILE))
        change(model)
        path = tmp_path / "mutant"
        with writing_bundle(path) as draft:
            for name in set(bundle.manifest.files) - {EXPLAIN_FILE}:  # which belongs to the model as it was
                (draft.folder / name).write_bytes(bundle.read(name))
            (draft.folder / MODEL_FILE).write_bytes(serialize(model))
            for name, data in (extra or {}).items():
                (draft.folder / name).write_bytes(data)

            def listing(files: dict[str, FileRecord]) -> Manifest:
                return manifest(bundle.manifest).model_copy(update={"files": files})

            draft.finish(listing)
        return open_bundle(path).path

    return make


@pytest.fixture
def relabelled(checkpoint_path: Path, tmp_path: Path) -> Callable[[tuple[str, ...]], Path]:
    """`relabelled(labels)`: the checkpoint with other labels, in another file."""

    def make(labels: tuple[str, ...]) -> Path:
        path = tmp_path / "relabelled.safetensors"
        write_checkpoint(path, replace(checkpoint_of(trained_like(CONFIGS["ssog"]), CONFIGS["ssog"]), labels=labels))
        return path

    return make


@pytest.fixture
def traced_once(bundle: Bundle, monkeypatch: pytest.MonkeyPatch) -> None:
    """Exports of the tiny checkpoint take the graph that was traced for `bundle`: tracing is slow and is not in question."""
    monkeypatch.setattr(work, "export_onnx", lambda *_: onnx.load_model_from_string(bundle.read(MODEL_FILE)))
