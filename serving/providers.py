"""The execution providers by our names: which are in this ONNX Runtime, and a session on one of them or an error.

ONNX Runtime itself falls back to the CPU with no more than a warning; here that is an error.
"""

import importlib
import warnings
from collections.abc import Mapping
from importlib.util import find_spec
from pathlib import Path
from typing import Any

from gaussport.errors import ServingError
from gaussport.onnx_runtime import onnxruntime

PROVIDERS = {
    "cpu": "CPUExecutionProvider",
    "cuda": "CUDAExecutionProvider",
    "tensorrt": "TensorrtExecutionProvider",
    "tensorrt-rtx": "NvTensorRTRTXExecutionProvider",
}
RTX_PACKAGE = "onnxruntime_ep_nv_tensorrt_rtx"
"""NVIDIA's package that adds TensorRT-RTX to a plain ONNX Runtime."""

_INSTALL = {"cuda": "gaussport[gpu]", "tensorrt": "gaussport[gpu]", "tensorrt-rtx": "onnxruntime-ep-nv-tensorrt-rtx"}


def missing(provider: str) -> str | None:
    """Why the provider is not in this ONNX Runtime, or None when it is; a GPU may still be lacking."""
    if provider not in PROVIDERS:
        return f"there is no provider {provider!r}: choose one of auto, {', '.join(PROVIDERS)}"
    if PROVIDERS[provider] in onnxruntime.get_available_providers():
        return None
    if provider == "tensorrt-rtx" and find_spec(RTX_PACKAGE) is not None:
        return None
    return f"the provider {provider} is not in this ONNX Runtime: install {_INSTALL[provider]}"


def session_options(threads: int, any_shape: bool = False) -> onnxruntime.SessionOptions:
    """Threads that do not spin, and silence: what is wrong arrives as an exception.

    `any_shape` is for a model whose inputs have another shape at nearly every run: ONNX Runtime's plan of memory, which it
    makes for each shape and keeps, then costs more than it saves.
    """
    options = onnxruntime.SessionOptions()
    options.enable_mem_pattern = not any_shape
    options.intra_op_num_threads = threads
    options.inter_op_num_threads = 1
    options.add_session_config_entry("session.intra_op.allow_spinning", "0")
    options.log_severity_level = 3
    return options


def open_session(
    model: bytes | Path,
    name: str,
    provider: str,
    words: Mapping[str, str],
    threads: int,
    beside: Mapping[str, bytes] | None = None,
    any_shape: bool = False,
) -> onnxruntime.InferenceSession:
    """A session that runs on `provider`; `name` is what the model is called in errors, `beside` has the files that the
    model's bytes point into, `any_shape` as in `session_options`.

    Raises:
        ServingError: ONNX Runtime lacks the provider, cannot load the model, or would run it elsewhere.
    """
    if (reason := missing(provider)) is not None:
        raise ServingError(reason)
    source: Any = str(model) if isinstance(model, Path) else model
    options, wanted = session_options(threads, any_shape), PROVIDERS[provider]
    if beside:
        sizes = [len(content) for content in beside.values()]
        options.add_external_initializers_from_files_in_memory(list(beside), list(beside.values()), sizes)
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # ONNX Runtime warns of a fall back, which is an error below
            if wanted in onnxruntime.get_available_providers():
                session = onnxruntime.InferenceSession(source, options, providers=[(wanted, dict(words))])
            else:
                _add_rtx_device(options, words)
                session = onnxruntime.InferenceSession(source, options)
    except ServingError:
        raise
    except Exception as error:
        # ONNX Runtime raises some twenty classes without a common base below Exception.
        reason = str(error).strip().splitlines()[0][:300] if str(error).strip() else type(error).__name__
        raise ServingError(f"ONNX Runtime cannot load {name}: {reason}") from error
    running = session.get_providers()
    if not running or running[0] != wanted:
        raise ServingError(
            f"asked for the provider {provider} but ONNX Runtime fell back to {', '.join(running)}: "
            "run gaussport doctor, or serve with --provider cpu"
        )
    session.disable_fallback()
    return session


def _add_rtx_device(options: onnxruntime.SessionOptions, words: Mapping[str, str]) -> None:
    """Register NVIDIA's plugin provider once for the process, and choose the GPU that `device_id` names."""
    package = importlib.import_module(RTX_PACKAGE)
    name = package.get_ep_name()
    if not any(device.ep_name == name for device in onnxruntime.get_ep_devices()):
        try:
            onnxruntime.register_execution_provider_library(name, package.get_library_path())
        except Exception as error:  # as in open_session
            raise ServingError(f"the TensorRT-RTX provider cannot be loaded: {str(error).splitlines()[0][:300]}") from error
    devices = [device for device in onnxruntime.get_ep_devices() if device.ep_name == name]
    index = int(words.get("device_id", "0"))
    if index >= len(devices):
        raise ServingError(f"TensorRT-RTX sees {len(devices)} GPUs and --device-id is {index}: run gaussport doctor")
    options.add_provider_for_devices([devices[index]], {key: word for key, word in words.items() if key != "device_id"})
