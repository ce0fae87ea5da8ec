"""Of a model that reads text: does a row answer the same in any batch, and a stream what its whole sequence does?"""

from gaussport.errors import BundleError
from gaussport.export.proof import InPyTorch, Proof
from gaussport.export.sequence.padding import padding_proof
from gaussport.export.sequence.probes import TokenProbes
from gaussport.export.sequence.streaming_proof import streaming_proof
from gaussport.export.verification.subject import Subject


def padding_changes_nothing(subject: Subject) -> str:
    """Each row of a padded batch answers as it does alone."""
    manifest, probes = subject.bundle.manifest, subject.probes
    assert isinstance(probes, TokenProbes)
    runners = {name: runner for name, runner in subject.runners.items() if name not in subject.engines[0]}
    proof = padding_proof(runners, subject.questions, probes.pad, manifest.precision, manifest.output.name)
    return f"a row in a padded batch is {_said(subject, 'padding', proof)}"


def streams_agree(subject: Subject) -> str:
    """A stream through `step.onnx`, cut into chunks anyhow, ends where the model does on the whole sequence; where the
    checkpoint is given, where PyTorch does."""
    manifest, probes, step = subject.bundle.manifest, subject.probes, subject.step
    if manifest.stream is None or step is None:
        return "the model reads no streams: its attention looks at later tokens, or keeps no memory"
    assert isinstance(probes, TokenProbes)
    given = subject.wish.checkpoint is not None
    whole = InPyTorch(subject.classifier) if given else next(iter(subject.runners.values()))
    # The step is float32 whatever the model computes in.
    precision = "fp32" if given else manifest.precision
    proof = streaming_proof(whole, step, manifest.stream, probes, precision, manifest.output.name)
    kept = f"a stream keeps {manifest.stream.bytes_per_stream:,} bytes"
    return f"{kept} and ends {_said(subject, 'streams', proof)}{', in PyTorch' if given else ''}"


def _said(subject: Subject, name: str, proof: Proof) -> str:
    subject.proofs[name] = proof
    if proof.failed:
        worst = proof.worst
        raise BundleError(
            f"{worst.subject}: at batch {worst.batch} ({worst.probe}) {proof.output} differs from {proof.reference}'s by "
            f"{worst.max_abs:.2e}, more than the tolerance {proof.tolerance.reason}: export the bundle again"
        )
    return f"within {proof.worst.max_abs:.1e} of {proof.reference}, tolerance {proof.tolerance.reason}"
