"""What an export starts from: a module with its weights, and everything that a bundle says of it."""

import hashlib
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

import torch
from torch import Tensor, nn

from gaussport.export.bundle.manifest import FurtherInput, TensorSpec
from gaussport.export.calibration.samples import Source
from gaussport.export.onnx_export import pictures_of
from gaussport.export.probes import Asks, Probes
from gaussport.export.sequence.probes import TokenProbes, tokens_spec
from gaussport.models.checkpoint.building import build_classifier
from gaussport.models.checkpoint.contents import AnyCheckpoint, Checkpoint
from gaussport.models.image.preprocess import Preprocessing
from gaussport.models.text.tokenization import Tokenization


@dataclass(frozen=True, kw_only=True)
class Trained:
    """A module in eval mode that maps pixels [batch, C, height, width], and what `further_inputs` describes, or tokens
    [batch, length], to logits [batch, classes]; see `Checkpoint` for the fields that it shares with one. `patch` is the side
    of its patches in pixels, where it has such, `files` what its preprocessing names, by name."""

    module: nn.Module
    family: str
    config: Mapping[str, Any]
    labels: tuple[str, ...]
    preprocessing: Preprocessing | Tokenization
    source: str
    sha256: str
    patch: int | None = None
    further_inputs: tuple[FurtherInput, ...] = ()
    files: Mapping[str, bytes] = field(default_factory=dict)
    metrics: Mapping[str, float] = field(default_factory=dict)
    weights: str = "raw"
    weights_key: str = ""
    renamed: tuple[str, ...] = ()
    stored_dtypes: tuple[str, ...] = ("float32",)
    assumed: tuple[str, ...] = ()
    resized_from: tuple[int, int] | None = None

    @property
    def takes(self) -> tuple[TensorSpec, ...]:
        """What its forward takes, in this order."""
        if isinstance(self.preprocessing, Tokenization):
            return (tokens_spec(),)
        return (pictures_of(self.preprocessing.tensor_shape), *self.further_inputs)

    @property
    def probes(self) -> Asks:
        """What a proof feeds it."""
        if isinstance(self.preprocessing, Tokenization):
            return TokenProbes.of(self.preprocessing, int(self.config["trained_length"]))
        return Probes.of(self.preprocessing, self.patch, further=self.further_inputs)

    @property
    def samples(self) -> Source:
        """Where what it is calibrated with and measured on comes from."""
        return Source(self.preprocessing, self.files, self.further_inputs)

    @property
    def state_dict(self) -> dict[str, Tensor]:
        return dict(self.module.state_dict())

    @property
    def parameter_shapes(self) -> dict[str, tuple[int, ...]]:
        return {name: tuple(parameter.shape) for name, parameter in self.module.named_parameters()}


def hash_of_weights(module: nn.Module) -> str:
    """SHA-256 of names, dtypes, shapes and numbers: what stands for a file's hash when there is no file."""
    digest = hashlib.sha256()
    for name, tensor in sorted(module.state_dict().items()):
        digest.update(f"{name} {tensor.dtype} {list(tensor.shape)}\n".encode())
        digest.update(tensor.detach().cpu().contiguous().flatten().view(torch.uint8).numpy().tobytes())
    return digest.hexdigest()


def trained_classifier(checkpoint: AnyCheckpoint, files: Mapping[str, bytes] | None = None) -> Trained:
    """The classifier of a checkpoint, with the files that its tokenization names.

    Raises:
        CheckpointError, ConfigurationError: the weights do not fit the configuration.
    """
    pictures = checkpoint if isinstance(checkpoint, Checkpoint) else None
    return Trained(
        module=build_classifier(checkpoint),
        family=checkpoint.config.family,
        config=checkpoint.config.to_json(),
        labels=checkpoint.labels,
        preprocessing=checkpoint.preprocessing,
        source=checkpoint.source,
        sha256=checkpoint.sha256,
        patch=None if pictures is None else pictures.config.patch,
        files=files or {},
        metrics=checkpoint.metrics,
        weights=checkpoint.weights,
        weights_key=checkpoint.weights_key,
        renamed=checkpoint.renamed,
        stored_dtypes=checkpoint.stored_dtypes,
        assumed=checkpoint.assumed,
        resized_from=None if pictures is None else pictures.resized_from,
    )
