"""What the tests of precision work on: a checkpoint of the zoo with its module and its float32 graph."""

from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path

import numpy as np
import onnx
from numpy.typing import NDArray

from gaussport.export.calibration.pictures import Pictures, labelled, unlabelled
from gaussport.export.model_file import serialize
from gaussport.export.probes import Probes
from gaussport.export.session import Session
from gaussport.models.checkpoint import Checkpoint
from gaussport.models.classifier import Classifier


@dataclass(frozen=True)
class Zoo:
    """One checkpoint, its module and its float32 graph."""

    path: Path
    checkpoint: Checkpoint
    module: Classifier
    model: onnx.ModelProto

    @property
    def probes(self) -> Probes:
        return Probes.of(self.checkpoint.preprocessing, self.checkpoint.config.patch)

    def with_tensor(self, name: str, change: Callable[[NDArray[np.float32]], NDArray[np.float32]]) -> onnx.ModelProto:
        """The graph with one stored tensor changed."""
        model = onnx.ModelProto()
        model.CopyFrom(self.model)
        for tensor in model.graph.initializer:
            if tensor.name == name:
                tensor.CopyFrom(onnx.numpy_helper.from_array(change(onnx.numpy_helper.to_array(tensor)), name))
                return model
        raise KeyError(name)

    @cached_property
    def held_out(self) -> Pictures:
        return labelled("mnist", self.checkpoint.preprocessing, self.checkpoint.labels)

    @cached_property
    def digits(self) -> NDArray[np.float32]:
        """Every fourth held-out digit, [250, 1, 28, 28]."""
        return np.stack([self.held_out.pixels(index) for index in range(0, 1000, 4)])

    @cached_property
    def targets(self) -> NDArray[np.int64]:
        return np.asarray(self.held_out.targets)[::4]

    @cached_property
    def calibration(self) -> Pictures:
        return unlabelled("mnist", self.checkpoint.preprocessing, 64)

    @cached_property
    def logits(self) -> NDArray[np.float32]:
        """The float32 graph's answers to `digits`."""
        return run(self.model, self.digits)


def run(model: onnx.ModelProto, pixels: NDArray[np.float32]) -> NDArray[np.float32]:
    return Session(serialize(model)).run(pixels)
