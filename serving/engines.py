"""Which engine of a bundle runs on this machine, and its files where ONNX Runtime can load them.

Hashes are compared before TensorRT sees a byte: its loader is not made for damaged engines.
"""

import contextlib
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryDirectory

from gaussport.errors import BundleError, ServingError
from gaussport.export.bundle.engines import (
    BUILDERS,
    CONTEXT_FILE,
    ENGINE_FILE,
    ENGINES_FOLDER,
    PLUGIN_FILE,
    EngineRecord,
    Machine,
)
from gaussport.export.bundle.store import Bundle


@dataclass(frozen=True)
class Engine:
    """An engine that fits this machine."""

    bundle: Bundle
    name: str
    record: EngineRecord

    @contextlib.contextmanager
    def on_disk(self) -> Iterator[Path]:
        """The folder of its files, every hash compared; a zip's are unpacked for the time of the block.

        Raises:
            BundleError: a file is missing or damaged.
        """
        home = f"{ENGINES_FOLDER}/{self.name}"
        needed = [CONTEXT_FILE, ENGINE_FILE, *([PLUGIN_FILE] if self.record.plugin_layers else [])]
        try:
            if self.bundle.path.is_dir():
                for file in needed:
                    self.bundle.check(f"{home}/{file}")
                yield self.bundle.path / ENGINES_FOLDER / self.name
                return
            with TemporaryDirectory(prefix="gaussport-engine-") as folder:
                for file in needed:
                    self.bundle.copy(f"{home}/{file}", Path(folder) / file)
                yield Path(folder)
        except OSError as error:
            raise BundleError(f"the engine {self.name} of {self.bundle.path} cannot be read: {error}") from error


def choose_engine(bundle: Bundle, machine: Machine, name: str | None = None) -> Engine:
    """The one engine that fits the machine, or the one of that name.

    Raises:
        ServingError: there is none, several fit and none is named, or the one named is stale or for another machine.
    """
    engines = {key: record for key, record in bundle.manifest.engines.items() if record.builder == machine.builder}
    words = BUILDERS[machine.builder]
    if not engines:
        raise ServingError(
            f"{bundle.path} has no {words} engine: build one with gaussport build-engine {bundle.path} "
            f"--builder {machine.builder} --arch sm_{machine.architecture}"
        )
    if name is not None and name not in engines:
        raise ServingError(f"{bundle.path} has no {words} engine {name}: it has {', '.join(engines)}")
    asked = engines if name is None else {name: engines[name]}
    refusals = {key: reason for key, record in asked.items() if (reason := refusal(bundle, machine, record)) is not None}
    fitting = [key for key in asked if key not in refusals]
    if not fitting:
        key, reason = next(iter(refusals.items()))
        more = f" (and {len(refusals) - 1} more that do not fit)" if len(refusals) > 1 else ""
        raise ServingError(f"the engine {key} of {bundle.path} cannot run: {reason}{more}")
    if len(fitting) > 1:
        raise ServingError(
            f"{len(fitting)} engines of {bundle.path} fit: choose with --tensorrt-engine, {' or '.join(fitting)}"
        )
    return Engine(bundle, fitting[0], engines[fitting[0]])


def refusal(bundle: Bundle, machine: Machine, record: EngineRecord) -> str | None:
    """Why the engine must not run here, or None when it may."""
    if record.model_sha256 != bundle.manifest.model_sha256:
        return "it was built from another model.onnx than the bundle has now, rebuild it with gaussport build-engine"
    reason = machine.refusal(record)
    return None if reason is None else reason.replace("BUNDLE", str(bundle.path))
