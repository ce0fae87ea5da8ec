"""Does the model run, at every batch size, and does it answer as it should, whoever runs it?"""

import numpy as np

from gaussport.errors import BundleError
from gaussport.export.precision.integer_twin import integer_twin
from gaussport.export.precision.runners import NO_BF16, has_cpu_kernels
from gaussport.export.probes import batch_sizes
from gaussport.export.proof import Proof, agree, prove_integers, prove_runners
from gaussport.export.sequence.probes import TokenProbes
from gaussport.export.session import Session
from gaussport.export.tolerance import tolerance_between_forms
from gaussport.export.verification.subject import Subject
from gaussport.models.image.preprocess import Preprocessing
from gaussport.models.text.tokenization import Tokenization


def session_opens(subject: Subject) -> str:
    """ONNX Runtime accepts the model, or the CPU has no kernels for its precision."""
    if not has_cpu_kernels(subject.model):
        return NO_BF16
    session = Session(subject.file)
    return f"ONNX Runtime reads {', '.join(session.inputs)} and gives {session.output}"


def batches_run(subject: Subject) -> str:
    """Every batch size, length, probe and memory layout gives finite logits, one row for each picture or text."""
    manifest = subject.bundle.manifest
    runner = next(iter(subject.runners.values()))
    for question in subject.questions:
        size, logits = question.rows, runner.run(question.inputs)
        if logits.shape != (size, len(manifest.labels)):
            raise BundleError(f"batch {size} gives logits of shape {list(logits.shape)}, not {[size, len(manifest.labels)]}")
        if not np.isfinite(logits).all():
            raise BundleError(f"batch {size} ({question.probe}) gives logits that are NaN or infinite")
    beside = f", {len(subject.photographs)} photographs" if subject.photographs else ""
    if isinstance(subject.probes, TokenProbes):
        beside = f", at lengths {', '.join(map(str, subject.probes.lengths))}"
    return f"batch {', '.join(map(str, batch_sizes(manifest.max_batch)))} give finite logits, in 3 memory layouts{beside}"


def runners_agree(subject: Subject) -> str:
    """The model with its functions inlined, and every engine that runs here, give the logits of the model as written."""
    manifest = subject.bundle.manifest
    if len(subject.runners) == 1:
        return f"there is one way only to run this model here: {next(iter(subject.runners))}"
    reference, engines = next(iter(subject.runners)), subject.engines[0]
    forms = {name: runner for name, runner in subject.runners.items() if name not in engines}
    others = {name: runner for name, runner in subject.runners.items() if name == reference or name in engines}
    said = []
    if len(forms) > 1:
        proof = agree(forms, subject.questions, manifest.precision, manifest.output.name, tolerance_between_forms)
        said.append(_judged(subject, "inlined", proof, "with its functions inlined the model"))
    if len(others) > 1:
        proof = agree(others, subject.questions, manifest.precision, manifest.output.name)
        said.append(_judged(subject, "engines", proof, "run by its engines the model"))
    return "; ".join(said)


def engines_run(subject: Subject) -> str:
    """Which engines of the bundle this machine can run. One that it cannot run is no fault of the bundle's."""
    running, absent = subject.engines
    if not running and not absent:
        return "the bundle has no engines"
    said = [f"{name} runs here and is compared" for name in running]
    return "; ".join([*said, *(f"{engine.name} is not compared: {engine.reason}" for engine in absent)])


def pytorch_agrees(subject: Subject) -> str:
    """The checkpoint, in PyTorch, gives the same logits."""
    manifest, checkpoint = subject.bundle.manifest, subject.original
    reads = [_read_by(front) for front in (checkpoint.preprocessing, manifest.front)]
    if reads[0] != reads[1]:
        raise BundleError(
            f"{checkpoint.source} takes {reads[0]} but the bundle {reads[1]}: this is another model's checkpoint"
        )
    if len(checkpoint.labels) != len(manifest.labels):
        raise BundleError(
            f"{checkpoint.source} knows {len(checkpoint.labels)} classes but the bundle has {len(manifest.labels)} "
            "labels: this is another model's checkpoint"
        )
    proof = prove_runners(subject.classifier, subject.runners, subject.questions, manifest.precision, manifest.output.name)
    said = _judged(subject, "pytorch", proof, "the model")
    if manifest.precision == "int8":
        said += f"; {_integers_agree(subject)}"
    same = checkpoint.sha256 == manifest.provenance.checkpoint_sha256
    file = "the bundle's own checkpoint" if same else f"{checkpoint.source}, another file than the bundle was made of"
    return f"{said}; {file}"


def _read_by(front: Preprocessing | Tokenization) -> str:
    if isinstance(front, Tokenization):
        return f"text of {front.vocabulary:,} tokens with {front.pad} as padding"
    return f"pictures of {front.tensor_shape}"


def _integers_agree(subject: Subject) -> str:
    """An int8 model does what PyTorch does with the checkpoint's weights as integers and the bundle's ranges."""
    twin = integer_twin(subject.classifier, subject.model)
    if twin is None:
        return "not compared in int8: a layer that the graph quantizes is no linear layer of the module"
    return _judged(subject, "integers", prove_integers(twin, subject.runners, subject.questions), "it")


def other_agrees(subject: Subject) -> str:
    """The model of another bundle gives the same logits."""
    assert subject.reference is not None
    (name, reference), manifest, other = subject.reference, subject.bundle.manifest, subject.other.bundle.manifest
    faces = [([(spec.dtype, spec.shape[1:]) for spec in of.inputs], of.labels) for of in (other, manifest)]
    if faces[0] != faces[1]:
        raise BundleError(f"{name} takes other inputs or has other labels than this bundle: it is another model")
    runners = {name: reference, **subject.runners}
    proof = agree(runners, subject.questions, manifest.precision, manifest.output.name)
    return _judged(subject, "against", proof, "the model")


def _judged(subject: Subject, name: str, proof: Proof, who: str) -> str:
    """Keep the proof for the report; its verdict."""
    subject.proofs[name] = proof
    proof.require()
    worst = proof.worst
    engines = len({c.subject for c in proof.comparisons} & set(subject.engines[0]))
    beside = f", {engines} engines among what was run" if engines else ""
    return f"{who} differs from {proof.reference} by at most {worst.max_abs:.1e}{beside}, tolerance {proof.tolerance.reason}"
