"""The checks in the order in which a doubt would arise, and their run: one finding each."""

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from gaussport.errors import BundleError, GaussportError
from gaussport.export.bundle.store import Bundle, open_bundle
from gaussport.export.verification.agreement import manifest_agrees
from gaussport.export.verification.answers import (
    batches_run,
    engines_run,
    other_agrees,
    pytorch_agrees,
    runners_agree,
    session_opens,
)
from gaussport.export.verification.blame import layer_at_fault
from gaussport.export.verification.explained import explanation_as_in_pytorch, explanation_tells
from gaussport.export.verification.labelled import data_answered
from gaussport.export.verification.operators import operators_known
from gaussport.export.verification.sequences import padding_changes_nothing, streams_agree
from gaussport.export.verification.size import size_explained
from gaussport.export.verification.standard import checker_accepts, versions_supported
from gaussport.export.verification.subject import Subject
from gaussport.export.verification.tensors import tensors_sound
from gaussport.export.verification.weights import weights_equal
from gaussport.export.verification.wish import VerifyWish

LAYER = "layer"
"""The finding that names the layer at fault; it comes last, and only when answers are wrong."""


@dataclass(frozen=True)
class Check:
    """One question. It is skipped unless the checks named in `needs` ended well."""

    name: str
    ask: Callable[[Subject], str]
    needs: tuple[str, ...] = ()


@dataclass(frozen=True)
class Finding:
    """The answer to one check, as a sentence."""

    check: str
    result: Literal["ok", "FAILED", "skipped"]
    text: str


CHECKS: tuple[Check, ...] = (
    Check("graph", lambda subject: f"{len(subject.nodes)} nodes, {len(subject.data):,} bytes"),
    Check("manifest", manifest_agrees, ("graph",)),
    Check("versions", versions_supported, ("graph",)),
    Check("operators", operators_known, ("graph",)),
    Check("tensors", tensors_sound, ("graph",)),
    Check("checker", checker_accepts, ("graph", "tensors")),
    Check("size", size_explained, ("graph", "tensors")),
    Check("session", session_opens, ("graph", "tensors")),
    Check("batches", batches_run, ("session", "manifest", "operators")),
    Check("engines", engines_run, ("batches",)),
    Check("inlined", runners_agree, ("batches", "engines")),
    Check("explain", explanation_tells, ("batches",)),
)
OF_TEXT: tuple[Check, ...] = (
    Check("padding", padding_changes_nothing, ("batches",)),
    Check("streams", streams_agree, ("batches",)),
)
WITH_CHECKPOINT: tuple[Check, ...] = (
    Check("weights", weights_equal, ("graph", "tensors")),
    Check("pytorch", pytorch_agrees, ("batches",)),
    Check("explained", explanation_as_in_pytorch, ("explain", "pytorch")),
)
WITH_AGAINST: tuple[Check, ...] = (Check("against", other_agrees, ("batches",)),)
WITH_DATA: tuple[Check, ...] = (Check("data", data_answered, ("batches",)),)


def checks(wish: VerifyWish, takes_text: bool = False) -> tuple[Check, ...]:
    """The checks that a wish asks for, in order, of a bundle for pictures or for text."""
    return (
        *CHECKS,
        *(OF_TEXT if takes_text else ()),
        *(() if wish.checkpoint is None else WITH_CHECKPOINT),
        *(() if wish.against is None else WITH_AGAINST),
        *(() if wish.data is None else WITH_DATA),
    )


def verify_bundle(path: Path, checkpoint: Path | None = None, config: Path | None = None) -> Iterator[Finding]:
    """Ask every check of the bundle at `path`, and PyTorch when its checkpoint is given.

    Raises:
        BundleError: there is no bundle at `path`.
    """
    return ask_all(Subject(open_bundle(path, check_hashes=False), VerifyWish(checkpoint, config)))


def ask_all(subject: Subject) -> Iterator[Finding]:
    """Ask every check; when hashes differ nothing else, and when answers are wrong last which layer is at fault."""
    finding = _files(subject.bundle)
    yield finding
    if finding.result != "ok":
        return
    passed: set[str] = set()
    failed: set[str] = set()
    for check in checks(subject.wish, subject.bundle.manifest.takes_text):
        missing = [name for name in check.needs if name not in passed]
        if missing:
            finding = Finding(check.name, "skipped", f"it needs the check {missing[0]!r} to pass")
        else:
            finding = _ask(check, subject)
        if finding.result != "skipped":
            (passed if finding.result == "ok" else failed).add(check.name)
        yield finding
    fault = layer_at_fault(subject, failed)
    if fault is not None:
        yield Finding(LAYER, "FAILED", fault)


def _files(bundle: Bundle) -> Finding:
    try:
        for name in bundle.manifest.files:
            bundle.check(name)
    except BundleError as error:
        return Finding("files", "FAILED", str(error))
    return Finding("files", "ok", f"{len(bundle.manifest.files)} files match their hashes")


def _ask(check: Check, subject: Subject) -> Finding:
    try:
        return Finding(check.name, "ok", check.ask(subject))
    except GaussportError as error:
        return Finding(check.name, "FAILED", str(error))
