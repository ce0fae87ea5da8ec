"""`python -m gaussport.export.engine.worker FOLDER`: the process that TensorRT runs in. It builds one engine and ends.

TensorRT may abort its process, and keeps the driver and much memory; here it does both to nobody else. The exit code is 0
with `answer.json`, or 1 with one sentence in `error.txt`; anything else is a crash.
"""

import sys
import traceback
import warnings
from pathlib import Path
from typing import Any

from gaussport.errors import EngineError, GaussportError
from gaussport.export.engine.backend import Backend
from gaussport.export.engine.layers import check_plugins, check_precision, engine_layers, network_layers, report, summary
from gaussport.export.engine.log import Messages, make_logger
from gaussport.export.engine.monitor import Interruption, progress_monitor
from gaussport.export.engine.network import check_shapes, network_inputs, parse, register_plugins
from gaussport.export.engine.request import ENGINE, ERROR, LAYERS, LOG, MODEL, Answer, Request
from gaussport.export.engine.timing_cache import attach_timing_cache, save_timing_cache
from gaussport.gpu import driver


def main(folder: Path) -> int:
    """Build what the request in the folder asks for."""
    try:
        _build(folder, Request.read(folder)).write(folder)
    except GaussportError as error:
        (folder / ERROR).write_text(str(error), encoding="utf-8")
        return 1
    except Exception as error:  # noqa: BLE001 - the parent must hear of it in one sentence, and the log has the rest
        (folder / ERROR).write_text(f"the engine builder failed: {type(error).__name__}: {error}", encoding="utf-8")
        with (folder / LOG).open("a", encoding="utf-8") as log:
            traceback.print_exc(file=log)
        return 1
    return 0


def _build(folder: Path, request: Request) -> Answer:
    backend = Backend.load(request.builder)
    trt, messages = backend.trt, Messages(folder / LOG)
    logger = make_logger(trt, messages)
    builder = trt.Builder(logger)
    register_plugins(backend, request.plugin_library, {operator for _, operator in request.plugin_nodes}, messages)
    network = parse(backend, builder, logger, (folder / MODEL).read_bytes(), messages)
    layers = network_layers(network)
    check_plugins(layers, [name for name, _ in request.plugin_nodes])
    check_precision(layers, request.precision)
    check_shapes(network, request.probes)
    config, told = _configured(backend, builder, network, request, messages)
    engine = _built(trt, builder, network, config, messages)
    if (warning := save_timing_cache(config, _cache_path(request))) is not None:
        told.append(warning)
    (folder / ENGINE).write_bytes(engine)
    inspected = engine_layers(trt, logger, engine) if driver().gpus else None
    (folder / LAYERS).write_text(report(layers, inspected), encoding="utf-8")
    return Answer(backend.version, sum(layer.plugin for layer in layers), summary(layers), tuple(told))


def _configured(backend: Backend, builder: Any, network: Any, request: Request, messages: Messages) -> tuple[Any, list[str]]:
    trt = backend.trt
    config = builder.create_builder_config()
    config.profiling_verbosity = trt.ProfilingVerbosity.DETAILED
    config.clear_flag(trt.BuilderFlag.TF32)  # on by default, and no float32: the bundle's proof would not hold
    backend.aim(config, request.architecture)
    profile = builder.create_optimization_profile()
    taken = True
    for given in network_inputs(network):
        lengths = request.lengths or request.batches  # without lengths no other axis is open
        sizes = zip(request.batches, lengths, strict=True)
        shapes = [(batch, *(length if axis < 0 else axis for axis in tuple(given.shape)[1:])) for batch, length in sizes]
        taken = profile.set_shape(given.name, *shapes) is not False and taken
    if not taken or config.add_optimization_profile(profile) < 0:
        lengths_said = "" if request.lengths is None else f" of lengths {list(request.lengths)}"
        raise EngineError(f"TensorRT refuses the batches {list(request.batches)}{lengths_said}: {messages.reason}")
    told = []
    if request.timing_cache is not None and request.builder == "tensorrt-rtx":
        told.append("TensorRT-RTX has no timing cache: --timing-cache is not used")
    elif (warning := attach_timing_cache(config, _cache_path(request), messages)) is not None:
        told.append(warning)
    return config, told


def _cache_path(request: Request) -> Path | None:
    used = request.timing_cache is not None and request.builder != "tensorrt-rtx"
    return Path(str(request.timing_cache)) if used else None


def _built(trt: Any, builder: Any, network: Any, config: Any, messages: Messages) -> bytes:
    interruption = Interruption()
    with interruption.listening(), progress_monitor(trt, interruption) as monitor:
        config.progress_monitor = monitor
        engine = builder.build_serialized_network(network, config)
        config.progress_monitor = None
    if interruption.wished:
        raise EngineError("interrupted: nothing was written")
    if engine is None:
        raise EngineError(f"TensorRT cannot build the engine: {messages.reason}")
    return bytes(engine)


if __name__ == "__main__":
    warnings.filterwarnings("ignore", category=DeprecationWarning, module="tensorrt.*")
    sys.exit(main(Path(sys.argv[1])))
