"""One bundle on this machine: which of its parts can be served here, and why the others cannot."""

from collections.abc import Iterator
from importlib.util import find_spec
from pathlib import Path

from gaussport.doctor.finding import Finding
from gaussport.doctor.machine import refusal
from gaussport.errors import BundleError
from gaussport.export.bundle.engines import BUILDERS, ENGINES_FOLDER, Machine
from gaussport.export.bundle.store import Bundle, open_bundle
from gaussport.gpu import Driver


def bundle(path: Path, found: Driver) -> Iterator[Finding]:
    """The model, then each engine. BundleError when there is no bundle at `path`."""
    opened = open_bundle(path, check_hashes=False)
    manifest = opened.manifest
    damaged = [name for name in manifest.files if not _whole(opened, name)]
    if damaged:
        yield Finding("bundle", "files", "no", f"{', '.join(damaged)} differ from their hashes: copy or export it again")
    else:
        yield Finding("bundle", "files", "ok", f"{len(manifest.files)} files match their hashes")
    reason = "ONNX Runtime is not installed" if find_spec("onnxruntime") is None else None
    model = f"{manifest.name}, {manifest.precision}, batches up to {manifest.max_batch}"
    yield Finding("bundle", "model.onnx", "no" if reason else "ok", reason or f"{model}: serve --provider cpu")
    if reason is None and refusal("cuda", found) is None:
        yield Finding("bundle", "model.onnx", "ok", f"{model}: serve --provider cuda")
    for name in manifest.engines:
        yield _engine(opened, name, found, damaged, reason)


def _engine(opened: Bundle, name: str, found: Driver, damaged: list[str], reason: str | None) -> Finding:
    record = opened.manifest.engines[name]
    if any(file.startswith(f"{ENGINES_FOLDER}/{name}/") for file in damaged):
        return Finding("bundle", name, "no", "a file of it is damaged: build the engine again")
    if record.model_sha256 != opened.manifest.model_sha256:
        return Finding("bundle", name, "no", "it was built from another model.onnx than the bundle has now: build it again")
    if (reason := reason or refusal(record.builder, found)) is not None:
        return Finding("bundle", name, "no", f"built for {record.target}; here {reason}")
    from gaussport.serving.tensorrt_libraries import load_tensorrt, version_of

    for gpu in found.gpus:
        machine = Machine(gpu.architecture, record.builder, version_of(load_tensorrt(record.builder)))
        if (reason := machine.refusal(record)) is None:
            where = f"on {gpu.name}: serve --provider {record.builder} --device-id {gpu.index}"
            return Finding("bundle", name, "ok", f"{record.precision}, {record.plugin_layers} plugins, {where}")
    return Finding("bundle", name, "no", str(reason or f"there is no GPU for {BUILDERS[record.builder]}"))


def _whole(opened: Bundle, name: str) -> bool:
    try:
        opened.check(name)
    except BundleError:
        return False
    return True
