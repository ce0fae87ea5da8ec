"""Does the model answer labelled pictures or texts as well as what it was made from?"""

from gaussport.errors import BundleError
from gaussport.export.bundle.manifest import Manifest
from gaussport.export.calibration.pictures import Pictures
from gaussport.export.tolerance import tolerance_for
from gaussport.export.verification.contact_sheet import contact_sheet
from gaussport.export.verification.measurement import Measurement, measure
from gaussport.export.verification.subject import Subject


def data_answered(subject: Subject) -> str:
    """Accuracy, and with a reference the drop and whose answer changed; pictures of them end up on a contact sheet."""
    manifest, wish = subject.bundle.manifest, subject.wish
    assert wish.data is not None
    source, runner, name = subject.samples, next(iter(subject.forgetful.values())), manifest.input.name
    samples = source.labelled(wish.data, manifest.labels)
    reference = None if subject.reference is None else (subject.reference[0], source.answers(subject.reference[1], name))
    answers = source.answers(runner, name)
    found = measure(answers, samples, manifest.labels, _tolerance(subject), subject.watch, reference)
    subject.measurement = found
    if found.changed and isinstance(samples, Pictures):
        subject.sheet = contact_sheet(found.changed, samples, manifest.labels, manifest.preprocessing)
    said = _said(found, _card(manifest))
    if found.drop is not None and found.drop > wish.max_drop:
        raise BundleError(f"it drops {found.drop:.2f} points, more than --max-drop {wish.max_drop:g}: {said}")
    return said


def _tolerance(subject: Subject) -> float:
    """How far a logit may move and still be the same answer, as the proof before has it."""
    for name in ("pytorch", "against"):
        if name in subject.proofs:
            return subject.proofs[name].tolerance.absolute
    return tolerance_for(subject.bundle.manifest.precision, 0.0).absolute


def _card(manifest: Manifest) -> str:
    """The accuracy that the checkpoint's card states, and of what; empty when it states none."""
    stated, old = manifest.metrics.get("held_out_accuracy"), manifest.provenance.resized_from
    if stated is None:
        return ""
    other = ""
    if old is not None:
        height, width = manifest.preprocessing.size
        other = f" for pictures of {old[0]}×{old[1]}, and this model takes {height}×{width}"
    return f"its checkpoint's card states {stated:.2%}{other}"


def _said(found: Measurement, card: str) -> str:
    said = [f"{found.accuracy:.2%} of {found.pictures:,} {found.things} of {found.source} are right"]
    if found.reference is not None:
        ties = sum(change.tie for change in found.changed)
        beside = f", {ties} of them ties within the tolerance" if ties else ""
        said.append(f"{found.reference} {found.reference_accuracy:.2%}; {len(found.changed):,} answers changed{beside}")
    elif card:
        said.append(card)
    if found.unreadable:
        said.append(f"{len(found.unreadable):,} {found.things} cannot be read, the first is {found.unreadable[0]}")
    return ", ".join(said)
