"""Training a classifier of sequences, and how many documents it gets right."""

from collections.abc import Callable, Iterator
from pathlib import Path

import numpy as np
import torch
from torch import Tensor

from gaussport.models.sequence import SequenceClassifier, SequenceConfig
from gaussport.models.text import Tokenization, join, pad_batch, windows
from gaussport.models.training.loop import Course, Step, epoch_generator, fit, new
from gaussport.models.training.settings import TrainingSettings
from gaussport.models.training.state import describe
from gaussport.models.training.token_rows import TokenRows

BATCH_TOKENS = 16_384


def train_on_sequences(
    config: SequenceConfig,
    documents: TokenRows,
    held_out: TokenRows,
    spec: Tokenization,
    settings: TrainingSettings,
    state: Path | None = None,
    resume: bool = False,
    watch: Callable[[Step], None] = lambda step: None,
) -> SequenceClassifier:
    """Train a new classifier and return it in eval mode; see `fit`. What it reaches after an epoch is measured on the first
    `trained_length` tokens of the held-out documents, which takes little."""
    classifier = new(lambda: SequenceClassifier(config), settings.seed)

    def batches(epoch: int) -> Iterator[tuple[Tensor, Tensor]]:
        return documents.batches(config, spec, settings.batch_size, epoch_generator(settings.seed, epoch))

    beginnings = beginnings_only(spec, config.trained_length)
    course = Course(
        len(documents.plan(settings.batch_size)), batches, lambda: sequence_accuracy(classifier, held_out, beginnings)
    )
    run = describe(settings, config=config.to_json(), documents=len(documents), preprocessing=spec.model_dump(mode="json"))
    fit(classifier, course, settings, run, state, resume, watch)
    return classifier


def beginnings_only(spec: Tokenization, length: int) -> Tokenization:
    """The same tokens, of a document's first `length` alone."""
    return spec.model_copy(update={"max_tokens": length, "stride": length, "long_documents": "truncate"})


def sequence_accuracy(classifier: SequenceClassifier, documents: TokenRows, spec: Tokenization) -> float:
    """The fraction of documents whose most probable class is theirs, read as `spec` says: in windows, where they are long.
    Leaves the classifier in the mode it was in."""
    answers = probabilities(classifier, documents, spec).argmax(1)
    return float((answers == documents.targets.numpy()).mean())


def probabilities(classifier: SequenceClassifier, documents: TokenRows, spec: Tokenization) -> np.ndarray:
    """[documents, classes] in float64. Windows of like length share a batch, so that little of it is padding."""
    rows = [(len(w), n, w.astype(np.int64)) for n, tokens in enumerate(documents.documents) for w in windows(tokens, spec)]  # type: ignore[arg-type]
    rows.sort(key=lambda row: row[:2])
    of_each: list[list[tuple[int, np.ndarray]]] = [[] for _ in documents.documents]
    training = classifier.training
    classifier.eval()
    with torch.inference_mode():
        start = 0
        while start < len(rows):
            end = start + 1
            while end < len(rows) and (end + 1 - start) * rows[end][0] <= BATCH_TOKENS:
                end += 1
            batch = pad_batch([window for _, _, window in rows[start:end]], spec)
            shares = torch.softmax(classifier(torch.from_numpy(batch)).double(), -1).numpy()
            for (length, document, _), share in zip(rows[start:end], shares, strict=True):
                of_each[document].append((length, share))
            start = end
    classifier.train(training)
    return np.stack([join([share for _, share in found], [length for length, _ in found]) for found in of_each])
