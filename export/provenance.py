"""Where a bundle came from: the checkpoint, the tools, the time."""

from datetime import datetime
from importlib.metadata import PackageNotFoundError, version
from platform import python_version

from gaussport import __version__
from gaussport.export.bundle import Provenance
from gaussport.export.trained import Trained

_TOOLS = ("numpy", "onnx", "onnx-ir", "onnxruntime", "onnxscript", "torch")


def provenance_of(trained: Trained, created: datetime) -> Provenance:
    """Where these weights come from, and what turned them into a bundle."""
    return Provenance(
        # A file name may hold bytes that are no text; a manifest may not.
        checkpoint=trained.source.encode(errors="replace").decode(),
        checkpoint_sha256=trained.sha256,
        weights=trained.weights,
        weights_key=trained.weights_key,
        renamed=trained.renamed,
        stored_dtypes=trained.stored_dtypes,
        resized_from=trained.resized_from,
        assumed=trained.assumed,
        tools=tools_used(),
        created=created,
    )


def tools_used() -> dict[str, str]:
    """The version of each package that takes part in an export."""
    tools = {"gaussport": __version__, "python": python_version()}
    for name in _TOOLS:
        try:
            tools[name] = version(name)
        except PackageNotFoundError:  # onnxruntime goes by other names too: onnxruntime-gpu
            continue
    return tools
