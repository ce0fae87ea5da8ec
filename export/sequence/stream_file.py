"""`step.onnx` of an export: traced, written, proved."""

from pathlib import Path

from gaussport.export.model_file import ModelFile
from gaussport.export.probes import Question
from gaussport.export.proof import InPyTorch, Proof, Runs
from gaussport.export.sequence.padding import padding_proof
from gaussport.export.sequence.probes import TokenProbes
from gaussport.export.sequence.step_graph import export_step, stream_spec, streams, write_step
from gaussport.export.sequence.streaming_proof import streaming_proof
from gaussport.export.trained import Trained
from gaussport.models.sequence import SequenceClassifier

__all__ = ["prove_padding", "prove_stream", "write_stream"]


def write_stream(trained: Trained, folder: Path, written: ModelFile, opset: int) -> ModelFile | None:
    """Write `step.onnx` beside the model that was written, in float32 whatever that computes in; None when the module
    cannot stream, and no such file is written.

    Raises:
        ExportError: it cannot be traced.
    """
    module = trained.module
    return write_step(export_step(module, opset), folder, written) if streams(module) else None


def prove_stream(trained: Trained, step: ModelFile | None) -> Proof | None:
    """Streams through `step.onnx` against the module on whole sequences; None without one.

    Raises:
        ProofError: an answer differs.
    """
    if step is None:
        return None
    assert isinstance(trained.module, SequenceClassifier)
    assert isinstance(trained.probes, TokenProbes)
    proof = streaming_proof(InPyTorch(trained.module), step, stream_spec(trained.module), trained.probes)
    proof.require()
    return proof


def prove_padding(trained: Trained, runners: dict[str, Runs], questions: list[Question], precision: str) -> Proof | None:
    """Each row of a padded batch against the same row alone; None for a module that reads no tokens.

    Raises:
        ProofError: an answer depends on the batch.
    """
    probes = trained.probes
    if not isinstance(probes, TokenProbes):
        return None
    proof = padding_proof(runners, questions, probes.pad, precision)
    proof.require()
    return proof
