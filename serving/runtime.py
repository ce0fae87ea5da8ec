"""One ONNX Runtime session for every execution provider, that runs where it was asked to or does not start.

ONNX Runtime itself falls back to the CPU with no more than a warning; here that is an error.
"""

import time
from typing import Any

import numpy as np
from numpy.typing import NDArray

from gaussport.errors import ServingError
from gaussport.export.bundle.manifest import MODEL_FILE, Manifest, TensorSpec
from gaussport.export.bundle.store import Bundle
from gaussport.onnx_runtime import onnxruntime
from gaussport.serving.cores import usable_cores

Rows = NDArray[np.float32]

PROVIDERS = {
    "cpu": "CPUExecutionProvider",
    "cuda": "CUDAExecutionProvider",
    "tensorrt": "TensorrtExecutionProvider",
    "tensorrt-rtx": "NvTensorRTRTXExecutionProvider",
}
_DTYPES: dict[str, Any] = {"float32": np.float32, "float16": np.float16}
_WARM_UP_BUDGET_S = 1.0


class Runtime:
    """A model that turns pixels [N, C, H, W] into logits [N, K], both float32, whatever the graph computes in."""

    def __init__(self, bundle: Bundle, provider: str = "cpu", threads: int | None = None) -> None:
        self.manifest = bundle.manifest
        self.threads = threads or usable_cores()
        self._dtype = _dtype_of(bundle.manifest.input)
        self._session = _session(bundle, provider, self.threads)
        self._feed, self._fetch = bundle.manifest.input.name, [bundle.manifest.output.name]
        self.provider = provider
        self.fixed_batch = _check_contract(self._session, bundle)

    def run(self, pixels: Rows) -> Rows:
        """Logits of one batch. The array is the session's own, new for each call."""
        outputs = self._session.run(self._fetch, {self._feed: pixels.astype(self._dtype, copy=False)})
        logits: Rows = np.asarray(outputs[0]).astype(np.float32, copy=False)
        return logits

    def warm_up(self, max_batch: int) -> list[int]:
        """Run batches of 1, 2, 4 … max_batch so that no client pays for first allocations. Returns the sizes run.

        A model so slow that a second has passed keeps the rest for its clients: being ready counts more.
        """
        sizes = [max_batch] if self.fixed_batch else sorted({*(1 << n for n in range(max_batch.bit_length())), max_batch})
        began, done = time.monotonic(), []
        for size in sizes:
            self.run(np.zeros((size, *self.manifest.preprocessing.tensor_shape), dtype=np.float32))
            done.append(size)
            if time.monotonic() - began > _WARM_UP_BUDGET_S:
                break
        return done


def _session(bundle: Bundle, provider: str, threads: int) -> onnxruntime.InferenceSession:
    wanted = PROVIDERS.get(provider)
    if wanted is None:
        raise ServingError(f"there is no provider {provider!r}: choose one of {', '.join(PROVIDERS)}")
    if wanted not in onnxruntime.get_available_providers():
        raise ServingError(f"the provider {provider} is not in this ONNX Runtime: install gaussport[gpu]")
    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = threads
    options.inter_op_num_threads = 1
    options.add_session_config_entry("session.intra_op.allow_spinning", "0")
    options.log_severity_level = 3
    model = bundle.read(MODEL_FILE)
    try:
        session = onnxruntime.InferenceSession(model, options, providers=[wanted])
    except Exception as error:
        # ONNX Runtime raises some twenty classes without a common base below Exception.
        reason = str(error).strip().splitlines()[0][:300] if str(error).strip() else type(error).__name__
        raise ServingError(f"ONNX Runtime cannot load {MODEL_FILE} of {bundle.path}: {reason}") from error
    running = session.get_providers()
    if not running or running[0] != wanted:
        raise ServingError(
            f"asked for the provider {provider} but ONNX Runtime fell back to {', '.join(running)}: "
            "run gaussport doctor, or serve with --provider cpu"
        )
    session.disable_fallback()
    return session


def _dtype_of(spec: TensorSpec) -> Any:
    if spec.dtype not in _DTYPES:
        raise ServingError(f"the input {spec.name} is {spec.dtype}, which numpy cannot feed: export with float32 inputs")
    return _DTYPES[spec.dtype]


def _check_contract(session: onnxruntime.InferenceSession, bundle: Bundle) -> int | None:
    """The graph must be what the manifest says. Returns the batch size if the graph has but one."""
    manifest: Manifest = bundle.manifest
    for spec, found in ((manifest.input, session.get_inputs()), (manifest.output, session.get_outputs())):
        names = [node.name for node in found]
        if spec.name not in names:
            raise ServingError(f"{bundle.path} has no tensor {spec.name}: {MODEL_FILE} has {', '.join(names)}")
        shape = found[names.index(spec.name)].shape
        if list(shape[1:]) != list(spec.shape[1:]):
            raise ServingError(
                f"{spec.name} of {bundle.path} is {list(shape)} in the graph and {list(spec.shape)} in bundle.json"
            )
    if len(session.get_inputs()) != 1:
        raise ServingError(f"{bundle.path} wants {len(session.get_inputs())} inputs and a classifier has one")
    batch = session.get_inputs()[0].shape[0]
    return batch if isinstance(batch, int) else None
