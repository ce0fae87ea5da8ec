"""Where a bundle came from: the checkpoint, the tools, the time."""

from datetime import datetime
from importlib.metadata import PackageNotFoundError, version
from platform import python_version

from gaussport import __version__
from gaussport.export.bundle import Provenance
from gaussport.models.checkpoint import Checkpoint

_TOOLS = ("numpy", "onnx", "onnx-ir", "onnxruntime", "onnxscript", "torch")


def provenance_of(checkpoint: Checkpoint, created: datetime) -> Provenance:
    """What turned this checkpoint into a bundle, and when."""
    return Provenance(
        # A file name may hold bytes that are no text; a manifest may not.
        checkpoint=checkpoint.source.encode(errors="replace").decode(),
        checkpoint_sha256=checkpoint.sha256,
        weights=checkpoint.weights,
        assumed=checkpoint.assumed,
        tools=_tools(),
        created=created,
    )


def _tools() -> dict[str, str]:
    tools = {"gaussport": __version__, "python": python_version()}
    for name in _TOOLS:
        try:
            tools[name] = version(name)
        except PackageNotFoundError:  # onnxruntime goes by other names too: onnxruntime-gpu
            continue
    return tools
