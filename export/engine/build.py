"""From a bundle and a wish to the engines in the bundle, step by step. Nothing is written unless every step ends well."""

import shutil
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from importlib.metadata import PackageNotFoundError, version
from importlib.util import find_spec
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING

from gaussport import __version__
from gaussport.errors import BundleError, EngineError, UsageError
from gaussport.export.bundle.engines import (
    BUILDERS,
    CONTEXT_FILE,
    ENGINE_FILE,
    ENGINES_FOLDER,
    LAYERS_FILE,
    PLUGIN_FILE,
    EngineRecord,
)
from gaussport.export.bundle.manifest import DATA_FILE, MODEL_FILE
from gaussport.export.bundle.revision import revising_bundle
from gaussport.export.bundle.store import Bundle, open_bundle
from gaussport.export.engine.architectures import listed
from gaussport.export.engine.backend import check_installed, installed_version
from gaussport.export.engine.isolation import run_worker
from gaussport.export.engine.request import ENGINE, LAYERS, MODEL, Answer, Request
from gaussport.export.engine.wish import Wish, check_wish
from gaussport.gpu import driver
from gaussport.plugins import DOMAIN

if TYPE_CHECKING:
    import onnx

_TOOLS = ("onnx", "onnx-graphsurgeon", "triton")


@dataclass(frozen=True)
class Built:
    """One engine, as it lies in the bundle now."""

    record: EngineRecord
    engine_bytes: int
    summary: dict[str, int]
    """How many matrix products and plugins there are, by precision, as TensorRT typed them."""
    warnings: tuple[str, ...]


def build_engines(path: Path, wish: Wish, step: Callable[[str], None] = lambda _: None) -> tuple[Bundle, list[Built]]:
    """Build the engines that `wish` asks for and add them to the bundle at `path`. `step` hears what begins.

    Raises:
        UsageError: the wish cannot be, or the bundle has the engine already.
        EngineError: something is missing on this machine, or TensorRT refuses.
        BundleError: the bundle is damaged or changed meanwhile, or cannot be written.
    """
    bundle = open_bundle(path, check_hashes=False)
    check_wish(wish, bundle.manifest)
    check_installed(wish.builder)
    _check_tools(bundle, wish)
    architectures = _architectures(wish)
    _check_writable(bundle, wish, architectures)
    with TemporaryDirectory(prefix="gaussport-engine-") as scratch:
        step("preparing the graph")
        model = _load(bundle, Path(scratch))
        plan = _Plan(bundle, wish, model)
        made = []
        for architecture in architectures:
            folder = Path(scratch) / f"sm_{architecture}"
            folder.mkdir()
            step(f"building for sm_{architecture}")
            made.append((folder, *plan.build(folder, architecture)))
        step("writing the bundle")
        built = _publish(bundle, plan, made, wish.overwrite)
    return open_bundle(path, check_hashes=False), built


def _check_tools(bundle: Bundle, wish: Wish) -> None:
    """Raise an EngineError when what prepares the graph or compiles the kernels is not installed."""
    missing = [name for name in ("torch", "onnx", "onnx_graphsurgeon", "onnxruntime") if find_spec(name) is None]
    if missing:
        raise EngineError(f"{', '.join(missing)} missing, which prepares the graph: pip install 'gaussport[export]'")
    if bundle.manifest.operators and wish.plugins and find_spec("triton") is None:
        raise EngineError(
            "triton is not installed, and our kernels are compiled with it: pip install triton, or build the function "
            "bodies with --without-plugins"
        )


def _architectures(wish: Wish) -> tuple[int, ...]:
    """Those that were named, else this machine's GPU. TensorRT builds for no other than that."""
    found = driver()
    own = found.gpus[0].architecture if found.gpus else None
    if wish.builder == "tensorrt":
        if own is None:
            raise EngineError(
                f"TensorRT builds on the GPU that it builds for, and {found.fault}: build where the GPU is, or use "
                "--builder tensorrt-rtx, which needs none"
            )
        if set(wish.architectures) - {own}:
            raise EngineError(
                f"TensorRT builds for this machine's sm_{own} only and was asked for {listed(wish.architectures)}: "
                "build where that GPU is"
            )
    elif not wish.architectures and own is None:
        raise UsageError(f"there is no GPU to build for ({found.fault}): name one or more, as --arch sm_86")
    return tuple(dict.fromkeys(wish.architectures)) or (own or 0,)


def _check_writable(bundle: Bundle, wish: Wish, architectures: tuple[int, ...]) -> None:
    """Refuse an engine that is there already, before the work; its version is known once it is built, and checked again."""
    version = installed_version(wish.builder)
    bodies = bool(bundle.manifest.operators) and not wish.plugins
    for architecture in architectures:
        for name, record in bundle.manifest.engines.items():
            same = (record.builder, record.builder_version, record.architecture, record.precision, record.bodies)
            wished = (wish.builder, version, architecture, wish.precision or bundle.manifest.precision, bodies)
            if same == wished and not wish.overwrite:
                raise UsageError(f"{bundle.path} has the engine {name} already: pass --overwrite to build it again")


def _load(bundle: Bundle, scratch: Path) -> "onnx.ModelProto":
    import onnx
    from google.protobuf.message import DecodeError

    for name in (MODEL_FILE, DATA_FILE):
        if name in bundle.manifest.files:
            bundle.copy(name, scratch / name)
    try:
        return onnx.load(scratch / MODEL_FILE)
    except DecodeError:
        raise BundleError(f"{MODEL_FILE} of {bundle.path} is not an ONNX model: export the bundle again") from None


class _Plan:
    """What all architectures share: the typed graph, the plugin library, the profile."""

    def __init__(self, bundle: Bundle, wish: Wish, model: "onnx.ModelProto") -> None:
        from gaussport.export.engine.graph import plugin_nodes, prepare_graph

        self.manifest, self.wish = bundle.manifest, wish
        self.precision = wish.precision or bundle.manifest.precision
        self.batches, self.lengths = wish.batches(bundle.manifest), wish.lengths(bundle.manifest)
        custom = any(node.domain == DOMAIN for node in model.graph.node)
        self.library = None
        if custom and wish.plugins:
            from gaussport.export.engine.plugin_library import PluginLibrary

            self.library = PluginLibrary.build(wish.quick)
        self.model = prepare_graph(model, bundle.manifest.precision, self.precision, wish.plugins)
        self.nodes = plugin_nodes(self.model) if self.library else ()

    def build(self, folder: Path, architecture: int) -> tuple[EngineRecord, Answer]:
        """Leave the engine and its layers in `folder`."""
        import onnx

        model = onnx.ModelProto()
        model.CopyFrom(self.model)
        if self.library is not None:
            self.library.equip(model, self.nodes, architecture)
        (folder / MODEL).write_bytes(model.SerializeToString())
        cache = self.wish.timing_cache
        batches = (self.batches.least, self.batches.best, self.batches.most)
        lengths = None if self.lengths is None else (self.lengths.least, self.lengths.best, self.lengths.most)
        request = Request(
            builder=self.wish.builder,
            architecture=architecture,
            precision=self.precision,
            batches=batches,
            lengths=lengths,
            probes=tuple(self.batches.probes()),
            plugin_nodes=tuple((node.name, node.operator) for node in self.nodes),
            plugin_library=None if self.library is None else str(self.library.path),
            timing_cache=None if cache is None else str(cache.absolute()),
        )
        answer = run_worker(request, folder)
        record = EngineRecord.model_validate(
            {
                "builder": self.wish.builder,
                "builder_version": answer.builder_version,
                "architecture": architecture,
                "precision": self.precision,
                "batches": batches,
                "lengths": lengths,
                "model_sha256": self.manifest.model_sha256,
                "plugin_layers": answer.plugin_layers,
                "bodies": bool(self.manifest.operators) and not self.wish.plugins,
                "built_with": {"gaussport": __version__, BUILDERS[self.wish.builder]: answer.builder_version, **_versions()},
            }
        )
        return record, answer


def _versions() -> dict[str, str]:
    found = {}
    for name in _TOOLS:
        try:
            found[name] = version(name)
        except PackageNotFoundError:
            continue
    return found


def _publish(bundle: Bundle, plan: _Plan, made: list[tuple[Path, EngineRecord, Answer]], overwrite: bool) -> list[Built]:
    """Add the engines to the bundle as it is now, which may have others that came meanwhile."""
    from gaussport.export.engine.ep_context import context_model

    with _writing(bundle.path), revising_bundle(bundle.path) as (draft, manifest):
        if manifest.model_sha256 != bundle.manifest.model_sha256:
            raise BundleError(f"{MODEL_FILE} of {bundle.path} changed while the engine was built: build it again")
        engines, built = dict(manifest.engines), []
        for folder, record, answer in made:
            if record.name in engines and not overwrite:
                raise UsageError(f"{bundle.path} has the engine {record.name} already: pass --overwrite to build it again")
            home = draft.folder / ENGINES_FOLDER / record.name
            shutil.rmtree(home, ignore_errors=True)
            home.mkdir(parents=True)
            shutil.copyfile(folder / ENGINE, home / ENGINE_FILE)
            shutil.copyfile(folder / LAYERS, home / LAYERS_FILE)
            (home / CONTEXT_FILE).write_bytes(context_model(manifest, record))
            if plan.library is not None:
                shutil.copyfile(plan.library.path, home / PLUGIN_FILE)
            engines[record.name] = record
            built.append(Built(record, (home / ENGINE_FILE).stat().st_size, answer.summary, answer.warnings))
        draft.finish(lambda files: manifest.model_copy(update={"engines": engines, "files": files}))
    return built


@contextmanager
def _writing(path: Path) -> Iterator[None]:
    try:
        yield
    except OSError as error:
        raise BundleError(f"{path} cannot be written: {error.strerror or error}") from error
