"""A bundle's model in one ONNX Runtime session, on the execution provider that was asked for or not at all.

`cpu` and `cuda` run model.onnx with the function bodies; `tensorrt` and `tensorrt-rtx` run a prebuilt engine of the bundle,
plugins and all; `auto` takes the best of them that this machine can run and says why not the others.
"""

import time
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from gaussport.errors import GaussportError, ServingError
from gaussport.export.bundle.engines import CONTEXT_FILE, PLUGIN_FILE, Machine
from gaussport.export.bundle.manifest import DATA_FILE, MODEL_FILE, Manifest, TensorSpec
from gaussport.export.bundle.store import Bundle
from gaussport.gpu import GPU, driver
from gaussport.onnx_runtime import onnxruntime
from gaussport.serving.binding import Binding, Direct, Graphed, Staged
from gaussport.serving.cores import usable_cores
from gaussport.serving.engines import Engine, choose_engine
from gaussport.serving.provider_options import GPU_PROVIDERS, ProviderOptions
from gaussport.serving.providers import PROVIDERS, missing, open_session
from gaussport.serving.quickest_batch import quickest_batch
from gaussport.serving.rows import Rows, blank, inputs_of
from gaussport.serving.tensorrt_libraries import load_tensorrt, preload_cuda, register_plugins, version_of

__all__ = ["PROVIDERS", "Runtime"]

AUTO = ("tensorrt", "tensorrt-rtx", "cuda", "cpu")
"""The order in which `auto` tries."""

_DTYPES: dict[str, Any] = {"float32": np.float32, "float16": np.float16, "int64": np.int64}
_ELEMENTS = {"float": "float32", "double": "float64"}  # where ONNX Runtime's names are not numpy's
_WARM_UP_BUDGET_S = 0.5


@dataclass(frozen=True)
class _Opened:
    """A session, and what it runs on."""

    session: onnxruntime.InferenceSession
    provider: str
    gpu: GPU | None = None
    engine: Engine | None = None
    passed_over: dict[str, str] = field(default_factory=dict)


class Runtime:
    """A model that turns pixels [N, C, H, W] into logits [N, K], both float32, whatever the graph computes in; rows of a
    model that reads more are records (`serving.rows`).

    Attributes:
        provider: what runs, by our name; never `auto`.
        fixed_batch: the batch size, if the graph has but one.
        min_batch: the smallest batch that the engine's profile takes; smaller ones must be padded.
        max_batch: the largest batch that the engine's profile takes, or the bundle's proof ran.
        facts: what runs, in words, for the model's configuration at /v2/models/NAME/config.
        label: the engine's name, or the provider where there is no engine, for metrics.
    """

    def __init__(
        self, bundle: Bundle, provider: str = "cpu", threads: int | None = None, options: ProviderOptions | None = None
    ) -> None:
        self.manifest = bundle.manifest
        self.threads = threads or usable_cores()
        self._first, self._dtype = bundle.manifest.input.name, _dtype_of(bundle.manifest.input)
        opened = _open(bundle, provider, self.threads, options or ProviderOptions())
        self.provider, self.passed_over = opened.provider, opened.passed_over
        self.fixed_batch = _check_contract(opened.session, bundle)
        self.max_batch = bundle.manifest.max_batch if opened.engine is None else opened.engine.record.batches[2]
        self.min_batch = 1 if opened.engine is None else opened.engine.record.batches[0]
        self.facts = _facts(opened, bundle)
        self.label = opened.provider if opened.engine is None else opened.engine.name
        self._binding = _binding(opened, bundle, options or ProviderOptions())

    def run(self, rows: Rows) -> Rows:
        """Logits of one batch, an array that is the caller's own."""
        inputs = inputs_of(rows, self._first)
        inputs[self._first] = inputs[self._first].astype(self._dtype, copy=False)
        logits: Rows = self._binding.run(inputs).astype(np.float32, copy=False)
        return logits

    def blank(self, size: int) -> Rows:
        """A batch of zeros."""
        return blank(self.manifest.inputs, size)

    def warm_up(self, max_batch: int) -> list[int]:
        """Run batches of 1, 2, 4 … max_batch so that no client pays for first allocations. Returns the sizes run.

        A model so slow that half a second has passed keeps the rest for its clients: being ready counts more.
        """
        sizes = [max_batch] if self.fixed_batch else sorted({*(1 << n for n in range(max_batch.bit_length())), max_batch})
        began, done = time.monotonic(), []
        for size in sizes:
            self.run(self.blank(size))
            done.append(size)
            if time.monotonic() - began > _WARM_UP_BUDGET_S:
                break
        return done

    def quickest_batch(self, most: int) -> int:
        """Warm up and say at which batch up to `most` a picture costs least: `most` on a GPU, and for a fixed batch."""
        if self.provider != "cpu" or self.fixed_batch is not None:
            self.warm_up(most)
            return most
        clock = time.thread_time if self.threads == 1 else time.perf_counter  # other jobs do not lengthen the first
        return quickest_batch(lambda size: self.run(self.blank(size)), most, _WARM_UP_BUDGET_S, clock)


def _open(bundle: Bundle, provider: str, threads: int, options: ProviderOptions) -> _Opened:
    if provider != "auto":
        options.check(provider)
        return _open_on(bundle, provider, threads, options)
    passed_over: dict[str, str] = {}
    for candidate in AUTO:
        try:
            options.check(candidate)
            opened = _open_on(bundle, candidate, threads, options)
        except GaussportError as error:
            if candidate == AUTO[-1]:
                raise
            passed_over[candidate] = str(error)
        else:
            return _Opened(opened.session, candidate, opened.gpu, opened.engine, passed_over)
    raise AssertionError("the last provider either opens or raises")


def _open_on(bundle: Bundle, provider: str, threads: int, options: ProviderOptions) -> _Opened:
    if (reason := missing(provider)) is not None:
        raise ServingError(reason)
    words = options.words(provider)
    if provider not in GPU_PROVIDERS:
        return _Opened(_model_session(bundle, provider, words, threads), provider)
    gpu = _gpu(provider, options.device_id)
    preload_cuda()
    if provider == "cuda":
        return _Opened(_model_session(bundle, provider, words, threads), provider, gpu)
    tensorrt = load_tensorrt(provider)
    engine = choose_engine(bundle, Machine(gpu.architecture, provider, version_of(tensorrt)), options.engine)
    with engine.on_disk() as folder:
        if engine.record.plugin_layers:
            register_plugins(tensorrt, folder / PLUGIN_FILE)
            if provider == "tensorrt":
                words["trt_extra_plugin_lib_paths"] = str(folder / PLUGIN_FILE)
        session = open_session(folder / CONTEXT_FILE, f"the engine {engine.name} of {bundle.path}", provider, words, threads)
    return _Opened(session, provider, gpu, engine)


def _model_session(bundle: Bundle, provider: str, words: dict[str, str], threads: int) -> onnxruntime.InferenceSession:
    """A session of model.onnx, from bytes whose hashes were compared."""
    if provider == "cpu" and bundle.manifest.precision == "bf16":
        raise ServingError(
            f"{bundle.path} is bf16, and ONNX Runtime's CPU provider cannot multiply bfloat16: use --provider cuda, "
            "or export the checkpoint with --precision fp16"
        )
    beside = {DATA_FILE: bundle.read(DATA_FILE)} if DATA_FILE in bundle.manifest.files else {}
    name, any_shape = f"{MODEL_FILE} of {bundle.path}", bundle.manifest.takes_text
    return open_session(bundle.read(MODEL_FILE), name, provider, words, threads, beside, any_shape)


def _gpu(provider: str, index: int) -> GPU:
    found = driver()
    if index >= len(found.gpus):
        reason = found.fault or f"the driver sees {len(found.gpus)} of them"
        raise ServingError(f"the provider {provider} needs GPU number {index}, but {reason}: serve with --provider cpu")
    return found.gpus[index]


def _binding(opened: _Opened, bundle: Bundle, options: ProviderOptions) -> Binding:
    fetch = bundle.manifest.output.name
    if opened.gpu is None:
        return Direct(opened.session, fetch)
    if not options.cuda_graph:
        return Staged(opened.session, fetch)
    return Graphed(opened.session, fetch, [len(bundle.manifest.labels)], ("cuda", opened.gpu.index))


def _facts(opened: _Opened, bundle: Bundle) -> dict[str, str]:
    precision = bundle.manifest.precision if opened.engine is None else opened.engine.record.precision
    facts = {"provider": opened.provider, "precision": precision, "onnxruntime": onnxruntime.__version__}
    if opened.gpu is not None:
        facts |= {"gpu": opened.gpu.name, "architecture": f"sm_{opened.gpu.architecture}"}
    if opened.engine is not None:
        record = opened.engine.record
        facts |= {"engine": opened.engine.name, "built_with": record.builder_version, "plugins": str(record.plugin_layers)}
    return facts


def _dtype_of(spec: TensorSpec) -> Any:
    if spec.dtype not in _DTYPES:
        raise ServingError(f"the input {spec.name} is {spec.dtype}, which numpy cannot feed: export with float32 inputs")
    return _DTYPES[spec.dtype]


def _check_contract(session: onnxruntime.InferenceSession, bundle: Bundle) -> int | None:
    """The graph must be what the manifest says. Returns the batch size if the graph has but one."""
    manifest: Manifest = bundle.manifest
    sides = [(spec, session.get_inputs()) for spec in manifest.inputs] + [(manifest.output, session.get_outputs())]
    for spec, found in sides:
        names = [node.name for node in found]
        if spec.name not in names:
            raise ServingError(f"{bundle.path} has no tensor {spec.name}: {MODEL_FILE} has {', '.join(names)}")
        node = found[names.index(spec.name)]
        shape, element = node.shape, node.type.removeprefix("tensor(").removesuffix(")")
        if (dtype := _ELEMENTS.get(element, element)) != spec.dtype:
            raise ServingError(f"{spec.name} of {bundle.path} is {dtype} in the graph and {spec.dtype} in bundle.json")
        if list(shape[1:]) != list(spec.shape[1:]):
            raise ServingError(
                f"{spec.name} of {bundle.path} is {list(shape)} in the graph and {list(spec.shape)} in bundle.json"
            )
    if (wanted := len(session.get_inputs())) != (stated := len(manifest.inputs)):
        raise ServingError(f"{bundle.path} wants {wanted} inputs in the graph and {stated} in bundle.json")
    batch = session.get_inputs()[0].shape[0]
    return batch if isinstance(batch, int) else None
