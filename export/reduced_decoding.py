"""What reduced decoding does to a model's answers, measured on pictures; without this no bundle uses it.

See `Preprocessing.decoding`: a large JPEG is decoded at a half, a quarter or an eighth of its size, and only what the crop
keeps is resized.
"""

from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np

from gaussport.errors import ConfigurationError, ProofError, UsageError
from gaussport.export.calibration.pictures import check_pictures_suffice, unlabelled
from gaussport.export.model_file import ModelFile
from gaussport.export.precision.accuracy import best
from gaussport.export.progress import Watch
from gaussport.export.session import Session
from gaussport.export.trained import Trained
from gaussport.models.image.preprocess import Preprocessing

LEAST_AGREEMENT = 0.999
"""Share of the pictures whose class must stay the same."""

LEAST_PICTURES = 100
"""Pictures whose pixels change, at least: of fewer an agreement says little."""

_MOST_PICTURES = 5000


@dataclass(frozen=True)
class ReductionEffect:
    """Measured on `pictures` pictures of the folder `source`, of which `changed` have other pixels when decoded reduced."""

    source: str
    pictures: int
    changed: int
    same_answer: float
    """Share of the changed pictures to which the model gives the same class."""
    largest_logit_change: float
    """Over the largest logit that any picture has."""

    def as_json(self) -> dict[str, Any]:
        return asdict(self)

    def as_markdown(self) -> str:
        return (
            f"Decoding is reduced: {self.changed} of {self.pictures} pictures have other pixels by it, of which "
            f"{self.same_answer:.2%} keep their answer; a logit changes by {self.largest_logit_change:.1e} of the largest "
            "logit at most."
        )


def reduced(spec: Preprocessing) -> Preprocessing:
    return spec.model_copy(update={"decoding": "reduced"})


def reduced_where_measured(
    trained: Trained, written: ModelFile, source: str | None, watch: Watch
) -> tuple[Trained, ReductionEffect | None]:
    """The same, told to decode reduced if `source` names pictures to measure it on, with the effect.

    Raises:
        ConfigurationError: its preprocessing asks for reduced decoding that nobody has measured on this model.
        UsageError: it reads more than pictures; DataError, ProofError: as `require_same_answers`.
    """
    spec = trained.preprocessing
    if not isinstance(spec, Preprocessing):
        if source is not None:
            raise UsageError(f"{trained.source} reads text, and --reduced-decoding is of pictures: leave it out")
        return trained, None
    if source is None:
        if spec.decoding != "exact":
            raise ConfigurationError(
                f"the preprocessing of {trained.source} asks for {spec.decoding} decoding, whose effect has to be measured: "
                "name a folder of pictures with --reduced-decoding, or take `decoding` out"
            )
        return trained, None
    check_pictures_suffice(trained.further_inputs, "--reduced-decoding")
    effect = require_same_answers(written, spec.model_copy(update={"decoding": "exact"}), source, watch)
    return replace(trained, preprocessing=reduced(spec)), effect


def require_same_answers(model: ModelFile, spec: Preprocessing, source: str, watch: Watch) -> ReductionEffect:
    """The effect on the answers of `model` in ONNX Runtime.

    Raises:
        DataError: the folder has no pictures, or one that cannot be read.
        ProofError: fewer than `LEAST_AGREEMENT` of the pictures keep their answer, or too few are changed to tell.
    """
    session = Session(model)
    whole, less = (unlabelled(source, each, _MOST_PICTURES) for each in (spec, reduced(spec)))
    changed, same, difference, largest = 0, 0, 0.0, 0.0
    for exact, near in watch(zip(whole.batches(), less.batches(), strict=True), whole.batch_count, "decoding reduced"):
        differs = np.any(exact != near, axis=(1, 2, 3))
        if not differs.any():
            continue
        answers, others = session.run(exact[differs]), session.run(near[differs])
        changed += int(differs.sum())
        same += int((best(answers) == best(others)).sum())
        difference = max(difference, float(np.abs(answers - others).max()))
        largest = max(largest, float(np.abs(answers).max()))
    if changed < LEAST_PICTURES:
        raise ProofError(
            f"reduced decoding changes {changed} of the {whole.count} pictures in {source}, too few to measure its effect: "
            f"give at least {LEAST_PICTURES} JPEGs of the sizes that clients send, or leave --reduced-decoding out"
        )
    effect = ReductionEffect(Path(source).name, whole.count, changed, same / changed, difference / largest)
    if effect.same_answer < LEAST_AGREEMENT:
        raise ProofError(
            f"with reduced decoding {same} of {changed} pictures keep their answer ({effect.same_answer:.2%}), fewer than "
            f"{LEAST_AGREEMENT:.1%}: leave --reduced-decoding out"
        )
    return effect
