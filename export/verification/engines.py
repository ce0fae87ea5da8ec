"""The bundle's engines as further models to compare: an engine runs through the ONNX model that wraps it (EPContext), in
a session of the execution provider that it was built for, or it is named with the reason why it cannot run here."""

from dataclasses import dataclass

from gaussport.errors import GaussportError
from gaussport.export.bundle.engines import CONTEXT_FILE, ENGINES_FOLDER
from gaussport.export.bundle.store import Bundle
from gaussport.export.model_file import ModelFile
from gaussport.export.proof import Runs
from gaussport.export.session import Session
from gaussport.onnx_runtime import onnxruntime

PROVIDERS = {"tensorrt-rtx": "NvTensorRTRTXExecutionProvider", "tensorrt": "TensorrtExecutionProvider"}
"""Which execution provider runs the engines of a builder."""


@dataclass(frozen=True)
class Absent:
    """An engine that cannot be compared on this machine, and why."""

    name: str
    reason: str


def engines(bundle: Bundle) -> tuple[dict[str, Runs], tuple[Absent, ...]]:
    """The engines that run on this machine, and those that do not."""
    running: dict[str, Runs] = {}
    absent: list[Absent] = []
    for name, record in bundle.manifest.engines.items():
        try:
            running[f"{ENGINES_FOLDER}/{name}"] = _opened(bundle, name, PROVIDERS[record.builder])
        except GaussportError as error:
            absent.append(Absent(f"{ENGINES_FOLDER}/{name}", str(error)))
    return running, tuple(absent)


def _opened(bundle: Bundle, name: str, provider: str) -> Session:
    if provider not in onnxruntime.get_available_providers():
        raise GaussportError(
            f"its execution provider {provider} is not in this ONNX Runtime {onnxruntime.__version__}: verify it on a "
            "machine with gaussport[gpu]"
        )
    return Session(ModelFile(bundle.read(f"{ENGINES_FOLDER}/{name}/{CONTEXT_FILE}")), provider)
