"""`bundle.json`: everything that a bundle says of itself."""

import hashlib
from datetime import datetime
from typing import Annotated, Any, Final, Literal

from pydantic import ConfigDict, Field, model_validator

from gaussport.errors import BundleError
from gaussport.export.bundle.engines import EngineName, EngineRecord
from gaussport.export.bundle.front import Front
from gaussport.export.bundle.record import Record, Sha256
from gaussport.export.bundle.stream import StreamSpec
from gaussport.export.bundle.tensor_spec import TensorSpec as TensorSpec
from gaussport.models.image.preprocess import Preprocessing
from gaussport.models.text.tokenization import Tokenization

SCHEMA_VERSION: Final = 1
MODEL_FILE = "model.onnx"
DATA_FILE = "model.onnx.data"
"""Where a model too large for one file, or exported with --external-data, has its weights."""
EXPLAIN_FILE = "explain.onnx"
"""What the attention looked at: the part of a graph that, appended to MODEL_FILE, gives it further outputs."""
STEP_FILE = "step.onnx"
"""The model for streams: a chunk of tokens and a state go in, logits and the state after them come out."""
MANIFEST_FILE = "bundle.json"
REPORT_FILE = "report.json"


class FurtherInput(TensorSpec):
    """An input beside the pictures, and the smallest and the largest number that the proof ran it with."""

    dtype: Literal["float32", "int64", "int32", "bool"]
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

    model_config = ConfigDict(serialize_by_alias=True)

    schema_version: Literal[1] = SCHEMA_VERSION
    name: Annotated[str, Field(pattern=r"^[A-Za-z0-9][A-Za-z0-9._-]{0,127}$")]
    """The model's name on the server."""
    version: Annotated[str, Field(pattern=r"^[0-9]{1,18}$")] = "1"
    family: str
    """`ssog`, `gma` or `dot`; `module` for a module of its author's own."""
    config: dict[str, Any]
    """The classifier's configuration, as `ClassifierConfig.to_json` gives it; of a `module`, what its author says of it."""
    labels: Annotated[tuple[str, ...], Field(min_length=1)]
    front: Front = Field(alias="preprocessing")
    """What makes pixels of a picture or tokens of a text: `preprocessing` or `tokenization`, which give one kind each."""
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
    stream: Annotated[StreamSpec | None, Field(exclude_if=lambda stream: stream is None)] = None
    """What `step.onnx` keeps of a stream; None for a model that cannot stream."""
    engines: dict[EngineName, EngineRecord] = Field(default_factory=dict)
    """Prebuilt engines by the name of their folder in `engines/`."""
    files: dict[str, FileRecord]

    @property
    def inputs(self) -> tuple[TensorSpec, ...]:
        """Everything that the model reads, in the order of the graph."""
        return (self.input, *self.further_inputs)

    @property
    def takes_text(self) -> bool:
        """Whether the model reads text, not pictures."""
        return isinstance(self.front, Tokenization)

    @property
    def preprocessing(self) -> Preprocessing:
        """What turns a picture into pixels. Everything that is for pictures alone goes through here.

        Raises:
            BundleError: the model reads text.
        """
        if isinstance(self.front, Tokenization):
            raise BundleError(f"the model {self.name} reads text, and this is for pictures: give it a bundle of pictures")
        return self.front

    @property
    def tokenization(self) -> Tokenization:
        """What turns a text into tokens. Everything that is for text alone goes through here.

        Raises:
            BundleError: the model reads pictures.
        """
        if not isinstance(self.front, Tokenization):
            raise BundleError(f"the model {self.name} reads pictures, and this is for text: give it a bundle of text")
        return self.front

    @property
    def model_sha256(self) -> str:
        """Hash of the model and, when they lie in a file of their own, its weights; empty when it has no model."""
        hashes = [self.files[name].sha256 for name in (MODEL_FILE, DATA_FILE) if name in self.files]
        return hashes[0] if len(hashes) == 1 else hashlib.sha256("".join(hashes).encode()).hexdigest() if hashes else ""

    @model_validator(mode="after")
    def _parts_agree(self) -> "Manifest":
        if isinstance(self.front, Tokenization):
            self._text_agrees(self.front)
        elif self.input.shape[1:] != self.front.tensor_shape:
            raise ValueError(f"input {self.input.shape} is not what preprocessing makes: {self.front.tensor_shape}")
        elif self.stream is not None:
            raise ValueError("a model of pictures has a stream, which is for text")
        if len({spec.name for spec in self.inputs}) != len(self.inputs):
            raise ValueError(f"two inputs have the same name: {', '.join(spec.name for spec in self.inputs)}")
        for spec in self.further_inputs:
            if spec.shape[:1] != self.input.shape[:1]:
                raise ValueError(f"the batch axis of {spec.name} is {spec.shape[:1]} and that of {self.input.name} is not")
        if self.output.shape[1:] != (len(self.labels),):
            raise ValueError(f"output {self.output.shape} does not have one column for each of {len(self.labels)} labels")
        return self

    def _text_agrees(self, tokenization: Tokenization) -> None:
        axes = [axis for axis in self.input.shape if isinstance(axis, str)]
        if self.input.dtype != "int64" or len(self.input.shape) != 2 or len(set(axes)) != 2:
            raise ValueError(f"input {self.input.dtype} {self.input.shape} is not tokens: int64 of any batch and any length")
        if tokenization.file and tokenization.file not in self.files:
            raise ValueError(f"{tokenization.file}, which makes the tokens, is not among the files")
        if (self.stream is None) != (STEP_FILE not in self.files):
            raise ValueError(f"a stream is stated exactly when there is {STEP_FILE}, and here one of them is missing")
