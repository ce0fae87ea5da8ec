"""Does the model run, at every batch size, and does it answer as it should?"""

import numpy as np

from gaussport.errors import BundleError
from gaussport.export.comparison import compare
from gaussport.export.probes import batch_sizes
from gaussport.export.proof import inlined, prove
from gaussport.export.session import Session
from gaussport.export.tolerance import CEILINGS
from gaussport.export.verification.subject import Subject
from gaussport.models.checkpoint import build_classifier, read_checkpoint


def session_opens(subject: Subject) -> str:
    """ONNX Runtime accepts the model."""
    session = subject.session
    return f"ONNX Runtime reads {session.input} and gives {session.output}"


def batches_run(subject: Subject) -> str:
    """Batch 1, 2, 7 and the largest give finite logits, one row for each picture."""
    manifest = subject.bundle.manifest
    for size in batch_sizes(manifest.max_batch):
        for probe, pixels in subject.probes.batches(size):
            logits = subject.session.run(pixels)
            if logits.shape != (size, len(manifest.labels)):
                raise BundleError(
                    f"batch {size} gives logits of shape {list(logits.shape)}, not {[size, len(manifest.labels)]}"
                )
            if not np.isfinite(logits).all():
                raise BundleError(f"batch {size} ({probe}) gives logits that are NaN or infinite")
    return f"batch {', '.join(map(str, batch_sizes(manifest.max_batch)))} give finite logits"


def bodies_equal_inlined(subject: Subject) -> str:
    """The function bodies, and the same model with them inlined, give the same logits."""
    if subject.external:
        return "not compared for a model with external data"
    other = Session(inlined(subject.data))
    answers = [(p, subject.session.run(x), other.run(x)) for size in (1, 2, 7) for p, x in subject.probes.batches(size)]
    scale = max(float(np.abs(logits).max()) for _, logits, _ in answers)
    # Without PyTorch its rounding is not known: only what no rounding explains is a fault.
    allowed = CEILINGS[subject.bundle.manifest.precision] * scale
    worst = max((compare("inlined", p, a, b, scale) for p, a, b in answers), key=lambda c: (c.not_finite > 0, c.max_abs))
    if not worst.within(allowed):
        raise BundleError(f"with its functions inlined the model differs by {worst.max_abs:.1e} at batch {worst.batch}")
    return f"with its functions inlined the model differs by at most {worst.max_abs:.1e}"


def pytorch_agrees(subject: Subject) -> str:
    """The checkpoint, in PyTorch, gives the same logits."""
    assert subject.checkpoint is not None
    manifest = subject.bundle.manifest
    checkpoint = read_checkpoint(subject.checkpoint, subject.config, None)
    classifier = build_classifier(checkpoint)
    if checkpoint.preprocessing.tensor_shape != manifest.preprocessing.tensor_shape:
        raise BundleError(
            f"{checkpoint.source} takes pictures of {checkpoint.preprocessing.tensor_shape} but the bundle of "
            f"{manifest.preprocessing.tensor_shape}: this is another model's checkpoint"
        )
    if subject.external:
        return "not compared for a model with external data"
    proof = prove(classifier, subject.data, subject.probes, manifest.max_batch, manifest.precision)
    proof.require()
    same = checkpoint.sha256 == manifest.provenance.checkpoint_sha256
    file = "the bundle's own checkpoint" if same else f"{checkpoint.source}, another file than the bundle was made of"
    return f"differs from PyTorch by at most {proof.worst.max_abs:.1e}, tolerance {proof.tolerance.reason}; {file}"
