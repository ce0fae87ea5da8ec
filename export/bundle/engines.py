"""Prebuilt TensorRT engines of a bundle: what `bundle.json` says of each, and which of them fits a machine.

engines/<builder>-<version>-sm_<architecture>-<precision>/
    model.engine               what TensorRT built
    model_ctx.onnx             one EPContext node, so that ONNX Runtime takes the engine for the model
    libgaussport_plugins.so    the plugins that the engine calls
    layers.json                its layers, their types, and which are plugins
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Annotated, Literal, Self

from pydantic import Field, model_validator

from gaussport.export.bundle.record import Record, Sha256

ENGINES_FOLDER = "engines"
ENGINE_FILE = "model.engine"
CONTEXT_FILE = "model_ctx.onnx"
PLUGIN_FILE = "libgaussport_plugins.so"
LAYERS_FILE = "layers.json"

Builder = Literal["tensorrt", "tensorrt-rtx"]
BUILDERS: Mapping[str, str] = {"tensorrt": "TensorRT", "tensorrt-rtx": "TensorRT-RTX"}
"""Each builder's name on the command line, and in sentences."""

EngineName = Annotated[str, Field(pattern=r"^[A-Za-z0-9][A-Za-z0-9._-]{0,127}$")]
_Batch = Annotated[int, Field(ge=1)]


class EngineRecord(Record):
    """One engine: what it was built for, and from what."""

    builder: Builder
    builder_version: Annotated[str, Field(pattern=r"^[0-9]+([.][0-9]+){1,4}$")]
    architecture: Annotated[int, Field(ge=50, le=999)]
    """Compute capability times ten: 86 is sm_86."""
    precision: Literal["fp32", "fp16", "bf16", "int8"]
    batches: tuple[_Batch, _Batch, _Batch]
    """Smallest, best and largest batch of the optimization profile."""
    lengths: Annotated[tuple[_Batch, _Batch, _Batch] | None, Field(exclude_if=lambda lengths: lengths is None)] = None
    """The same of the tokens in a row, for a model that reads text."""
    model_sha256: Sha256
    """`model.onnx`, with its weights, as it was when the engine was built: another one makes the engine stale."""
    plugin_layers: Annotated[int, Field(ge=0)]
    """How many layers are plugins; with 0 the engine needs no plugin library."""
    bodies: bool = False
    """Whether the custom operators were built from their function bodies, to compare; then no layer is a plugin."""
    built_with: dict[str, str] = Field(default_factory=dict)
    """Version of each package that took part."""

    @model_validator(mode="after")
    def _batches_ascend(self) -> Self:
        for what, sizes in (("batches", self.batches), ("lengths", self.lengths or ())):
            if list(sizes) != sorted(sizes):
                raise ValueError(f"the profile's {what} {list(sizes)} do not ascend")
        return self

    @property
    def name(self) -> str:
        """The name of its folder in `engines/`."""
        bodies = "-bodies" if self.bodies else ""
        return f"{self.builder}-{self.builder_version}-sm_{self.architecture}-{self.precision}{bodies}"

    @property
    def target(self) -> str:
        """What it was built for, in words."""
        return f"sm_{self.architecture} with {BUILDERS[self.builder]} {self.builder_version}"


@dataclass(frozen=True)
class Machine:
    """Where an engine would run: the GPU's compute capability times ten, and TensorRT's version in ONNX Runtime."""

    architecture: int
    builder: str
    builder_version: str

    def refusal(self, engine: EngineRecord) -> str | None:
        """Why the engine cannot run here, or None when it can. Engines are bound to one GPU architecture and version."""
        if engine.builder != self.builder:
            return f"it is a {BUILDERS[engine.builder]} engine, and {BUILDERS[self.builder]} was asked for"
        same_version = _release(engine.builder_version) == _release(self.builder_version)
        if engine.architecture == self.architecture and same_version:
            return None
        return (
            f"built for {engine.target}, this is sm_{self.architecture} with {self.builder_version}: rebuild with "
            f"gaussport build-engine BUNDLE --builder {self.builder} --arch sm_{self.architecture} "
            f"--precision {engine.precision}"
        )


def _release(version: str) -> tuple[int, ...]:
    """Major, minor and patch; the fourth number is the build, which engines do not depend on."""
    numbers = [int(number) for number in version.split(".")[:3]]
    return (*numbers, *[0] * (3 - len(numbers)))
