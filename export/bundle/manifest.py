"""`bundle.json`: everything that a bundle says of itself."""

import hashlib
from datetime import datetime
from typing import Annotated, Any, Final, Literal

from pydantic import Field, model_validator

from gaussport.export.bundle.engines import EngineName, EngineRecord
from gaussport.export.bundle.record import Record, Sha256
from gaussport.models.image.preprocess import Preprocessing

SCHEMA_VERSION: Final = 1
MODEL_FILE = "model.onnx"
DATA_FILE = "model.onnx.data"
"""Where a model too large for one file, or exported with --external-data, has its weights."""
EXPLAIN_FILE = "explain.onnx"
"""What the attention looked at: the part of a graph that, appended to MODEL_FILE, gives it further outputs."""
MANIFEST_FILE = "bundle.json"
REPORT_FILE = "report.json"


class TensorSpec(Record):
    """One input or output of the ONNX graph. A dynamic axis is its symbol, a fixed one its size."""

    name: str
    dtype: Literal["float32", "float16", "bfloat16", "int64", "int32", "bool"]
    shape: tuple[int | str, ...]


class FurtherInput(TensorSpec):
    """An input beside the pictures, and the smallest and the largest number that the proof ran it with."""

    low: Annotated[float, Field(allow_inf_nan=False)]
    high: Annotated[float, Field(allow_inf_nan=False)]

    @model_validator(mode="after")
    def _is_a_range(self) -> "FurtherInput":
        if not self.low < self.high:
            raise ValueError(f"{self.name} goes from {self.low:g} to {self.high:g}, which is no range")
        return self


class FileRecord(Record):
    """One file of the bundle, by its path relative to the bundle."""

    bytes: Annotated[int, Field(ge=0)]
    sha256: Sha256


class Provenance(Record):
    """Where the weights came from and what turned them into this bundle."""

    checkpoint: str
    """File name of the checkpoint; no folder, so that a bundle tells nothing of the machine that wrote it."""
    checkpoint_sha256: Sha256
    weights: str
    """Which weights of the checkpoint: `raw`, or `ema` for their moving average."""
    weights_key: str = ""
    """The key of the file under which they lie; empty when they are the file."""
    renamed: Annotated[tuple[Annotated[str, Field(max_length=500)], ...], Field(max_length=100)] = ()
    """The rules `OLD=NEW` by which their names were changed."""
    stored_dtypes: tuple[str, ...] = ()
    """The precisions that they were stored in."""
    resized_from: tuple[int, int] | None = None
    """(height, width) that they were trained on, when the model takes another size."""
    assumed: tuple[str, ...] = ()
    """What nobody stated, so that a default stands in: `preprocessing`, `labels`, or a field of the configuration."""
    tools: dict[str, str]
    """Version of each package that took part."""
    created: datetime


class Manifest(Record):
    """The bundle's description. Axes, names and dtypes here are those of `model.onnx`."""

    schema_version: Literal[1] = SCHEMA_VERSION
    name: Annotated[str, Field(pattern=r"^[A-Za-z0-9][A-Za-z0-9._-]{0,127}$")]
    """The model's name on the server."""
    version: Annotated[str, Field(pattern=r"^[0-9]{1,18}$")] = "1"
    family: str
    """`ssog`, `gma` or `dot`; `module` for a module of its author's own."""
    config: dict[str, Any]
    """The classifier's configuration, as `ClassifierConfig.to_json` gives it; of a `module`, what its author says of it."""
    labels: Annotated[tuple[str, ...], Field(min_length=1)]
    preprocessing: Preprocessing
    input: TensorSpec
    further_inputs: Annotated[tuple[FurtherInput, ...], Field(max_length=32, exclude_if=lambda inputs: not inputs)] = ()
    """What the model reads beside the pictures, in the order of the graph; bundles without it are written as ever."""
    output: TensorSpec
    max_batch: Annotated[int, Field(ge=1)]
    """Largest batch that the proof ran."""
    opset: Annotated[int, Field(ge=1)]
    operators: dict[str, int]
    """Version of each custom operator domain in the graph."""
    precision: Literal["fp32", "fp16", "bf16", "int8"]
    """The narrowest that a layer of `model.onnx` computes in, read from the graph."""
    kept_fp32: dict[str, str] = Field(default_factory=dict)
    """Layers that stayed float32 although their kind is narrower in this model, by PyTorch's names, with the reason."""
    provenance: Provenance
    metrics: dict[str, float] = Field(default_factory=dict)
    """What the checkpoint's own card states, e.g. held-out accuracy."""
    engines: dict[EngineName, EngineRecord] = Field(default_factory=dict)
    """Prebuilt engines by the name of their folder in `engines/`."""
    files: dict[str, FileRecord]

    @property
    def inputs(self) -> tuple[TensorSpec, ...]:
        """Everything that the model reads, in the order of the graph."""
        return (self.input, *self.further_inputs)

    @property
    def model_sha256(self) -> str:
        """Hash of the model and, when they lie in a file of their own, its weights; empty when it has no model."""
        hashes = [self.files[name].sha256 for name in (MODEL_FILE, DATA_FILE) if name in self.files]
        return hashes[0] if len(hashes) == 1 else hashlib.sha256("".join(hashes).encode()).hexdigest() if hashes else ""

    @model_validator(mode="after")
    def _parts_agree(self) -> "Manifest":
        if self.input.shape[1:] != self.preprocessing.tensor_shape:
            raise ValueError(f"input {self.input.shape} is not what preprocessing makes: {self.preprocessing.tensor_shape}")
        if len({spec.name for spec in self.inputs}) != len(self.inputs):
            raise ValueError(f"two inputs have the same name: {', '.join(spec.name for spec in self.inputs)}")
        for spec in self.further_inputs:
            if spec.shape[:1] != self.input.shape[:1]:
                raise ValueError(f"the batch axis of {spec.name} is {spec.shape[:1]} and that of {self.input.name} is not")
        if self.output.shape[1:] != (len(self.labels),):
            raise ValueError(f"output {self.output.shape} does not have one column for each of {len(self.labels)} labels")
        return self
