"""Where a bundle came from: the checkpoint, the tools, the time."""

import os
from datetime import UTC, datetime
from importlib.metadata import PackageNotFoundError, version
from platform import python_version

from gaussport import __version__
from gaussport.errors import UsageError
from gaussport.export.bundle import Provenance
from gaussport.models.checkpoint import Checkpoint

_TOOLS = ("numpy", "onnx", "onnx-ir", "onnxruntime", "onnxscript", "torch")


def provenance_of(checkpoint: Checkpoint) -> Provenance:
    """What turned this checkpoint into a bundle, now or at SOURCE_DATE_EPOCH."""
    return Provenance(
        # A file name may hold bytes that are no text; a manifest may not.
        checkpoint=checkpoint.source.encode(errors="replace").decode(),
        checkpoint_sha256=checkpoint.sha256,
        weights=checkpoint.weights,
        tools=_tools(),
        created=_now(),
    )


def _tools() -> dict[str, str]:
    tools = {"gaussport": __version__, "python": python_version()}
    for name in _TOOLS:
        try:
            tools[name] = version(name)
        except PackageNotFoundError:  # onnxruntime goes by other names too: onnxruntime-gpu
            continue
    return tools


def _now() -> datetime:
    """The time, to the second; SOURCE_DATE_EPOCH (reproducible-builds.org) makes it a chosen one."""
    chosen = os.environ.get("SOURCE_DATE_EPOCH")
    if chosen is None:
        return datetime.now(UTC).replace(microsecond=0)
    try:
        return datetime.fromtimestamp(int(chosen), UTC)
    except (ValueError, OverflowError, OSError):
        raise UsageError(f"SOURCE_DATE_EPOCH is {chosen!r} but must be whole seconds since 1970") from None
