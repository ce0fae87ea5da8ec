"""Is a converted model good enough, and if not, which layers are to blame?"""

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray
from torch import nn

from gaussport.errors import ProofError
from gaussport.export.inputs import Inputs
from gaussport.export.model_file import ModelFile
from gaussport.export.precision.accuracy import Accuracy, classes_of, compared
from gaussport.export.precision.conversion import Conversion, advice
from gaussport.export.precision.layers import check_possible
from gaussport.export.precision.runners import session_of
from gaussport.export.precision.search import Harm
from gaussport.export.precision.wish import PrecisionWish
from gaussport.export.probes import Question
from gaussport.export.progress import Watch, unwatched
from gaussport.export.proof import INLINED, InPyTorch, Proof, Runs, sessions
from gaussport.export.trained import Trained

_QUESTIONS = 4  # of those that failed, the smallest: a search asks them some dozens of times


def check_sources(wish: PrecisionWish, trained: Trained) -> None:
    """Find the pictures, texts and layers that a wish names, so that what is not there is refused before the work.

    Raises:
        UsageError: pictures alone do not say what the module answers, or it has no such layer.
        DataError: there are none, or they have other labels.
    """
    check_possible(wish.keep_fp32, [name for name, _ in trained.module.named_modules(remove_duplicate=False) if name])
    if wish.calibration_data is not None:
        trained.samples.unlabelled(wish.calibration_data, 1)
    if wish.data is not None:
        trained.samples.labelled(wish.data, trained.labels)


def require_proof(
    proof: Proof, conversion: Conversion, module: nn.Module, questions: Sequence[Question], watch: Watch
) -> None:
    """Raise the proof's ProofError, with the layers that would mend it if the precision was changed."""
    try:
        proof.require()
    except ProofError as error:
        if not conversion.changed:
            raise
        missed = {(c.probe, c.batch) for c in proof.failed}
        few = sorted((q for q in questions if (q.probe, q.rows) in missed), key=lambda q: q.rows)[:_QUESTIONS]
        harm = _distance(conversion, module, [q.inputs for q in few], proof.tolerance.absolute)
        raise ProofError(f"{error}; {advice(conversion, harm, watch)}") from error


def require_accuracy(
    trained: Trained, written: ModelFile, conversion: Conversion, wish: PrecisionWish, watch: Watch
) -> tuple[Accuracy, ...]:
    """Accuracy on the wish's data of every way to run the model here; nothing when it names no data.

    Raises:
        DataError: the data cannot be used.
        ProofError: the worst of them drops by more than was allowed.
    """
    if wish.data is None:
        return ()
    source, name = trained.samples, trained.takes[0].name
    samples = source.labelled(wish.data, trained.labels)

    def classes(runner: Runs, title: str, watch: Watch = watch) -> NDArray[np.int64]:
        return classes_of(source.answers(runner, name), samples, watch, title)

    reference = classes(InPyTorch(trained.module), f"PyTorch on the labelled {samples.things}")
    found = tuple(
        compared(subject, samples, reference, classes(runner, f"the model on them, {subject}"))
        for subject, runner in sessions(written).items()
        if subject != INLINED
    )
    worst = max(found, key=lambda accuracy: accuracy.drop)
    if wish.max_drop is None or worst.drop <= wish.max_drop:
        return found

    def harm(keep: frozenset[str]) -> float:
        found = classes(session_of(conversion.rebuilt(keep)), "", unwatched)
        return 1 + compared("", samples, reference, found).drop - float(wish.max_drop or 0)

    raise ProofError(
        f"the {wish.precision} model gets {worst.model:.2%} of the {worst.pictures} {worst.things} of {worst.source} right "
        f"and the checkpoint {worst.checkpoint:.2%}: it drops {worst.drop:.2f} points, more than --max-drop "
        f"{wish.max_drop:g}; "
        + (advice(conversion, harm, watch) if conversion.changed else "look at the proof of the float32 model first")
    )


def _distance(conversion: Conversion, module: nn.Module, batches: list[Inputs], tolerance: float) -> Harm:
    """The largest distance of a logit from PyTorch's, in tolerances."""
    reference = InPyTorch(module)
    expected = [reference.run(inputs) for inputs in batches]

    def harm(keep: frozenset[str]) -> float:
        run = session_of(conversion.rebuilt(keep)).run
        worst = float(np.max([np.abs(run(x) - y).max() for x, y in zip(batches, expected, strict=True)]))  # NaN stays
        return worst / tolerance if np.isfinite(worst) else float("inf")

    return harm
