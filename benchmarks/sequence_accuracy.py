"""How many held-out documents sequence classifiers get right, by how much of each they may read, beside a bag of bytes.

    python benchmarks/sequence_accuracy.py FOLDER CHECKPOINT … [--lengths 128 256 512 1024 2048 4096 8192] [-o OUT]

FOLDER is one of those that `python -m gaussport.models.data.manpages` writes: `language` or `section`. At each length
every classifier reads the first so many bytes of every held-out document, whole where it has fewer: in one pass, without
windows. The bag of bytes counts the 20,000 most frequent runs of one to three bytes (sublinear tf-idf; scikit-learn's
CountVectorizer and LogisticRegression) in the first 2,048 bytes of the training documents; its penalty was chosen once, for
good results in languages. Under the table stands what the most frequent class alone would get. Writes OUT.json and OUT.md.
Takes some minutes of one core for each checkpoint and for the bag.
"""

import argparse
import json
import time
from collections.abc import Callable
from functools import partial
from pathlib import Path

import numpy as np
import torch
from rich.console import Console
from sklearn.feature_extraction.text import CountVectorizer, TfidfTransformer
from sklearn.linear_model import LogisticRegression

from gaussport.models.checkpoint import SequenceCheckpoint, build_classifier, read_any_checkpoint
from gaussport.models.data.text_folder import LabelledDocuments, TextDataSet, text_folder
from gaussport.models.training.sequences import beginnings_only, sequence_accuracy
from gaussport.models.training.token_rows import TokenRows

BAG = "bag of bytes"
BAG_BYTES = 2048
RUNS = 20_000
PENALTY = 30.0  # C of scikit-learn
Measure = Callable[[int], float]


def bag_of_bytes(data: TextDataSet) -> Measure:
    """The accuracy of logistic regression on counts of bytes, by how many bytes it reads."""
    counts = CountVectorizer(analyzer="char", ngram_range=(1, 3), lowercase=False, max_features=RUNS, dtype=np.float32)
    weights = TfidfTransformer(sublinear_tf=True)
    features = weights.fit_transform(counts.fit_transform(beginnings(data.train, BAG_BYTES)))
    model = LogisticRegression(C=PENALTY, max_iter=200).fit(features, data.train.targets)

    def measure(length: int) -> float:
        held_out = weights.transform(counts.transform(beginnings(data.held_out, length)))
        return float(model.score(held_out, data.held_out.targets))

    return measure


def beginnings(documents: LabelledDocuments, length: int) -> list[str]:
    """The first bytes of each document, each byte as one character."""
    return [document[:length].decode("latin-1") for document in documents]


def classifier(path: Path, data: TextDataSet) -> Measure:
    """The accuracy of a checkpoint, by how many bytes it reads."""
    checkpoint = read_any_checkpoint(path)
    if not isinstance(checkpoint, SequenceCheckpoint) or checkpoint.labels != data.labels:
        raise SystemExit(f"{path} does not tell the classes of {data.name} apart: {', '.join(data.labels)}")
    model, held_out = build_classifier(checkpoint), TokenRows.of(data.held_out, checkpoint.preprocessing)
    return lambda length: sequence_accuracy(model, held_out, beginnings_only(checkpoint.preprocessing, length))


def markdown(found: dict[str, dict[int, float]], lengths: list[int], data: TextDataSet) -> str:
    sizes = np.array([file.stat().st_size for file in data.held_out.files])
    lines = [f"| bytes read | held-out documents as long | {' | '.join(found)} |", "|---:|---:|" + "---:|" * len(found)]
    for length in lengths:
        numbers = " | ".join(f"{by_length[length]:.1%}" for by_length in found.values())
        lines.append(f"| {length:,} | {int((sizes >= length).sum()):,} of {len(sizes):,} | {numbers} |")
    label, share = most_frequent(data)
    return "\n".join(lines) + f"\n\nAlways {label}: {share:.1%}.\n"


def most_frequent(data: TextDataSet) -> tuple[str, float]:
    """The class that most training documents have, and its share of the held-out ones."""
    label = int(np.bincount(data.train.targets).argmax())
    return data.labels[label], float(np.mean(np.asarray(data.held_out.targets) == label))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folder", type=Path, metavar="FOLDER")
    parser.add_argument("checkpoints", type=Path, nargs="*", metavar="CHECKPOINT")
    parser.add_argument("--lengths", type=int, nargs="+", default=[128, 256, 512, 1024, 2048, 4096, 8192], help="bytes")
    parser.add_argument("--no-bag", action="store_true", help="leave the bag of bytes out")
    parser.add_argument("-o", "--output", type=Path, default=Path("build/bench/sequence-accuracy"))
    arguments = parser.parse_args()
    torch.set_num_threads(1)
    arguments.output.parent.mkdir(parents=True, exist_ok=True)
    data, console = text_folder(arguments.folder), Console(stderr=True)
    makers: dict[str, Callable[[], Measure]] = {p.stem: partial(classifier, p, data) for p in arguments.checkpoints}
    if not arguments.no_bag:
        makers[BAG] = partial(bag_of_bytes, data)
    found: dict[str, dict[int, float]] = {}
    for name, make in makers.items():
        began = time.process_time()
        measure = make()
        found[name] = {length: measure(length) for length in arguments.lengths}
        console.print(f"{name}: {time.process_time() - began:.0f} s of one core", highlight=False)
    label, share = most_frequent(data)
    document = {"data": data.name, "held_out": len(data.held_out), "accuracy": found, "most_frequent": {label: share}}
    arguments.output.with_suffix(".json").write_text(json.dumps(document, indent=1))
    table = markdown(found, arguments.lengths, data)
    arguments.output.with_suffix(".md").write_text(table)
    Console(width=140).print(table, highlight=False)


if __name__ == "__main__":
    main()
