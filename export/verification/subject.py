"""What is verified: a bundle whose files match their hashes, its model parsed, and what the checks share."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from functools import cached_property

import onnx
from google.protobuf.message import DecodeError
from torch import nn

from gaussport.errors import BundleError
from gaussport.export.bundle.manifest import DATA_FILE, MODEL_FILE, STEP_FILE
from gaussport.export.bundle.store import Bundle, open_bundle
from gaussport.export.calibration.samples import Source
from gaussport.export.graph_check import all_nodes
from gaussport.export.model_file import ModelFile
from gaussport.export.probes import Pixels, Probes, Question
from gaussport.export.progress import Watch, unwatched
from gaussport.export.proof import PYTORCH, InPyTorch, Proof, Runs, UnderNames, remembered, sessions
from gaussport.export.rereading import read_again
from gaussport.export.sequence.probes import TokenProbes
from gaussport.export.trained import Trained
from gaussport.export.verification.engines import Absent, engines
from gaussport.export.verification.measurement import Measurement
from gaussport.export.verification.photographs import photographs
from gaussport.export.verification.wish import VerifyWish


@dataclass
class Subject:
    """A bundle under verification, and what it is held against.

    `proofs`, `measurement` and `sheet` collect what the checks compared, for the report and for the search of the layer at
    fault; `watch` shows how far the long ones are.
    """

    bundle: Bundle
    wish: VerifyWish = field(default_factory=VerifyWish)
    watch: Watch = unwatched
    proofs: dict[str, Proof] = field(default_factory=dict)
    measurement: Measurement | None = None
    sheet: bytes | None = None

    @cached_property
    def data(self) -> bytes:
        return self.bundle.read(MODEL_FILE)

    @cached_property
    def file(self) -> ModelFile:
        """The model and the file beside it, both hashed as they were read."""
        names = [name for name in (DATA_FILE,) if self.external and name in self.bundle.manifest.files]
        return ModelFile(self.data, {name: self.bundle.content(name) for name in names})

    @cached_property
    def model(self) -> onnx.ModelProto:
        try:
            model = onnx.load_model_from_string(self.data)
        except DecodeError:
            raise BundleError(f"{MODEL_FILE} is not an ONNX model: export the bundle again") from None
        if not model.graph.node or not model.graph.input or not model.graph.output:
            raise BundleError(f"{MODEL_FILE} has no graph with an input, nodes and an output: export the bundle again")
        return model

    @cached_property
    def nodes(self) -> list[onnx.NodeProto]:
        return list(all_nodes(self.model.graph.node))

    @property
    def external(self) -> list[onnx.TensorProto]:
        """Initializers that lie in another file."""
        return [t for t in self.model.graph.initializer if t.data_location == onnx.TensorProto.EXTERNAL]

    @cached_property
    def forgetful(self) -> dict[str, Runs]:
        """Everything that can run the model here, the model as written first."""
        return {**sessions(self.file), **self.engines[0]}

    @cached_property
    def runners(self) -> dict[str, Runs]:
        """The same, each answering a question once."""
        return remembered(self.forgetful)

    @cached_property
    def engines(self) -> tuple[dict[str, Runs], tuple[Absent, ...]]:
        """The bundle's engines: those that run here, and why the others do not."""
        return engines(self.bundle)

    @cached_property
    def original(self) -> Trained:
        """The checkpoint to compare with, read as it was for the bundle."""
        assert self.wish.checkpoint is not None
        return read_again(self.bundle.manifest, self.wish.checkpoint, self.wish.config, self.wish.model)

    @cached_property
    def classifier(self) -> nn.Module:
        """The checkpoint's classifier, in PyTorch."""
        return self.original.module

    @cached_property
    def other(self) -> Subject:
        """The bundle to compare with."""
        assert self.wish.against is not None
        return Subject(open_bundle(self.wish.against))

    @cached_property
    def reference(self) -> tuple[str, Runs] | None:
        """What this bundle is held against, by name; None when it is only held against itself."""
        if self.wish.checkpoint is not None:
            return PYTORCH, InPyTorch(self.classifier)
        if self.wish.against is not None:
            names = [spec.name for spec in self.other.bundle.manifest.inputs]
            return str(self.wish.against), UnderNames(next(iter(self.other.forgetful.values())), names)
        return None

    @cached_property
    def step(self) -> ModelFile | None:
        """`step.onnx`, which may point into the same file beside it as the model does; None where there is none."""
        if self.bundle.manifest.stream is None:
            return None
        names = [name for name in (DATA_FILE,) if name in self.bundle.manifest.files]
        return ModelFile(self.bundle.read(STEP_FILE), {name: self.bundle.content(name) for name in names})

    @cached_property
    def samples(self) -> Source:
        """Where what the model is measured on comes from."""
        manifest = self.bundle.manifest
        names = [manifest.tokenization.file] if manifest.takes_text and manifest.tokenization.file else []
        return Source(manifest.front, {name: self.bundle.read(name) for name in names}, manifest.further_inputs)

    @property
    def probes(self) -> Probes | TokenProbes:
        manifest = self.bundle.manifest
        if manifest.takes_text:
            trained = manifest.config.get("trained_length")
            length = trained if isinstance(trained, int) and trained > 0 else manifest.tokenization.max_tokens
            return TokenProbes.of(manifest.tokenization, length, manifest.input.name)
        stated = manifest.config.get("patch")
        patch = stated if isinstance(stated, int) and stated > 0 else None
        return Probes.of(manifest.preprocessing, patch, manifest.input.name, manifest.further_inputs)

    @cached_property
    def photographs(self) -> Sequence[Pixels]:
        """None for a model that reads text."""
        manifest = self.bundle.manifest
        return () if manifest.takes_text else photographs(manifest.preprocessing)

    @cached_property
    def questions(self) -> list[Question]:
        most, probes = self.bundle.manifest.max_batch, self.probes
        return probes.questions(most) if isinstance(probes, TokenProbes) else probes.questions(most, self.photographs)
