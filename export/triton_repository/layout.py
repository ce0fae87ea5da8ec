"""Writes one model of a Triton model repository, whole or not at all; other models of the repository stay as they are.

DIR/NAME/config.pbtxt, labels.txt
DIR/NAME/VERSION/   python: model.py and the bundle;  onnxruntime: model.onnx;  tensorrt: model.plan
DIR/NAME/libgaussport_plugins.so   tensorrt only: the plugins that the engine calls
"""

import os
from dataclasses import dataclass
from pathlib import Path

import gaussport
from gaussport.errors import ExportError
from gaussport.export.bundle.engines import ENGINE_FILE, ENGINES_FOLDER, PLUGIN_FILE, EngineRecord
from gaussport.export.bundle.manifest import DATA_FILE, MANIFEST_FILE, MODEL_FILE
from gaussport.export.bundle.store import Bundle, open_bundle
from gaussport.export.triton_repository.config import LABELS_FILE, config
from gaussport.export.triton_repository.wish import Wish
from gaussport.export.whole_folder import whole_folder

CONFIG_FILE = "config.pbtxt"
_MODEL_PY = Path(gaussport.__file__).parent / "serving" / "triton_model.py"


@dataclass(frozen=True)
class Written:
    """What was written, and how Triton is started with it."""

    repository: Path
    model: Path
    max_batch: int
    command: tuple[str, ...]


def write_model(path: Path, repository: Path, wish: Wish, overwrite: bool = False) -> Written:
    """Write the bundle as a model of the repository.

    Raises:
        BundleError: the bundle is missing or damaged.
        UsageError: the wish cannot be, or the model exists.
        ExportError: the bundle has not what the backend needs, or nothing can be written.
    """
    bundle = open_bundle(path)
    manifest = bundle.manifest
    wish.check(manifest)
    engine = _engine(bundle, wish) if wish.backend == "tensorrt" else None
    most = manifest.max_batch if engine is None else min(manifest.max_batch, engine.batches[2])
    max_batch = wish.max_batch or most
    if isinstance(fixed := manifest.input.shape[0], int) and wish.backend != "python":
        max_batch = fixed
    _make_repository(repository)
    target = repository / manifest.name
    with whole_folder(target, CONFIG_FILE, overwrite) as draft:
        version = draft / manifest.version
        version.mkdir()
        (draft / CONFIG_FILE).write_text(config(manifest, wish, max_batch, _parameters(wish)), encoding="utf-8")
        (draft / LABELS_FILE).write_text(
            "".join(f"{' '.join(label.split())}\n" for label in manifest.labels), encoding="utf-8"
        )
        if wish.backend == "python":
            (version / "model.py").write_text(
                _prelude(wish.python_path) + _MODEL_PY.read_text(encoding="utf-8"), encoding="utf-8"
            )
            _copy(bundle, version / "bundle")
        elif engine is None:
            bundle.copy(MODEL_FILE, version / MODEL_FILE)
            if DATA_FILE in manifest.files:
                bundle.copy(DATA_FILE, version / DATA_FILE)
        else:
            bundle.copy(f"{ENGINES_FOLDER}/{engine.name}/{ENGINE_FILE}", version / "model.plan")
            if engine.plugin_layers:
                bundle.copy(f"{ENGINES_FOLDER}/{engine.name}/{PLUGIN_FILE}", draft / PLUGIN_FILE)
    return Written(repository, target, max_batch, _command(repository, target, engine))


def _prelude(python_path: str | None) -> str:
    """Lines that come before the first import, so that numpy is the one beside gaussport."""
    return "" if python_path is None else f"import sys\n\nsys.path[:0] = {python_path.split(os.pathsep)!r}\n\n"


def _make_repository(repository: Path) -> None:
    try:
        repository.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise ExportError(f"{repository} cannot be written: {error.strerror}") from error


def _parameters(wish: Wish) -> dict[str, str]:
    """What model.py reads; the other backends read none."""
    if wish.backend != "python":
        return {}
    given = {"threads": wish.threads, "engine": wish.engine}
    return {"provider": wish.provider} | {key: str(value) for key, value in given.items() if value is not None}


def _engine(bundle: Bundle, wish: Wish) -> EngineRecord:
    """The TensorRT engine that was named, or the only one."""
    engines = {key: each for key, each in bundle.manifest.engines.items() if each.builder == "tensorrt"}
    if wish.engine is not None and wish.engine not in engines:
        raise ExportError(f"{bundle.path} has no TensorRT engine {wish.engine}: it has {', '.join(engines) or 'none'}")
    if not engines:
        raise ExportError(
            f"{bundle.path} has no TensorRT engine: build one with gaussport build-engine, or use --backend python"
        )
    if wish.engine is None and len(engines) > 1:
        raise ExportError(
            f"{bundle.path} has {len(engines)} TensorRT engines: choose with --tensorrt-engine, {' or '.join(engines)}"
        )
    return engines[wish.engine or next(iter(engines))]


def _copy(bundle: Bundle, folder: Path) -> None:
    for name in bundle.manifest.files:
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        bundle.copy(name, folder / name)
    (folder / MANIFEST_FILE).write_text(bundle.manifest.model_dump_json(indent=2) + "\n", encoding="utf-8")


def _command(repository: Path, model: Path, engine: EngineRecord | None) -> tuple[str, ...]:
    words = ("tritonserver", "--model-repository", str(repository))
    if engine is None or not engine.plugin_layers:
        return words
    return (*words, f"--backend-config=tensorrt,plugins={model / PLUGIN_FILE}")
