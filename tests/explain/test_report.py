"""`gaussport report`: its numbers are scikit-learn's and scipy's, its card is a card, and what cannot be is one sentence."""

import json
import re
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import yaml
from hypothesis import given
from hypothesis import strategies as st
from numpy.typing import NDArray
from PIL import Image
from scipy.stats import binomtest
from sklearn.metrics import (
    balanced_accuracy_score,
    brier_score_loss,
    confusion_matrix,
    log_loss,
    precision_recall_fscore_support,
    top_k_accuracy_score,
)

from gaussport.cli import main
from gaussport.export.bundle.manifest import FurtherInput
from gaussport.export.bundle.store import Bundle, writing_bundle
from gaussport.serving.model_report.answers import NO_ANSWER, Answers
from gaussport.serving.model_report.comparison import compared
from gaussport.serving.model_report.folder import write_files
from gaussport.serving.model_report.intervals import mcnemar, paired_difference, wilson
from gaussport.serving.model_report.scores import BINS, scores

Bundles = Callable[..., Bundle]


@pytest.fixture(scope="module")
def data(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Forty blurred strokes under the labels of digits, most of which no model gets right; a file that is no picture."""
    root = tmp_path_factory.mktemp("data") / "strokes"
    random = np.random.default_rng(0)
    for number in range(40):
        folder = root / str(number % 10)
        folder.mkdir(parents=True, exist_ok=True)
        canvas = random.integers(0, 60, (28, 28), dtype=np.uint8)
        canvas[4:24, random.integers(6, 20) :][:, :3] = 255
        Image.fromarray(canvas).save(folder / f"{number}.png")
    (root / "3" / "broken.png").write_bytes(b"no picture")
    return root


def _answers(manifest: Any, logits: NDArray[np.float64]) -> Answers:
    shares = np.exp(logits) / np.exp(logits).sum(axis=1, keepdims=True)
    read = np.arange(len(logits))
    return Answers(manifest, {}, read, {}, shares.astype(np.float32), shares.astype(np.float32).argmax(axis=1))


@given(total=st.integers(1, 5000), right=st.integers(0, 5000))
def test_wilsons_interval_is_scipys(total: int, right: int) -> None:
    right = min(right, total)
    expected = binomtest(right, total).proportion_ci(method="wilson")
    assert wilson(right, total) == pytest.approx((expected.low, expected.high), abs=1e-12)


@given(lost=st.integers(0, 800), won=st.integers(0, 800))
def test_mcnemars_p_is_the_exact_binomial_test(lost: int, won: int) -> None:
    expected = binomtest(lost, lost + won).pvalue if lost + won else 1.0
    assert mcnemar(lost, won) == pytest.approx(expected, rel=1e-8, abs=1e-300)


def test_the_paired_interval_covers_the_truth_as_often_as_it_says() -> None:
    """Drawn 4,000 times from known chances; 95 % must hold within four standard errors, for few changes as well."""
    random = np.random.default_rng(1)
    for total, chance_lost, chance_won in ((200, 0.05, 0.1), (1000, 0.004, 0.004)):
        draws = random.multinomial(total, (chance_lost, chance_won, 1 - chance_lost - chance_won), 4000)
        ends = np.array([paired_difference(int(lost), int(won), total) for lost, won, _ in draws])
        held = np.mean((ends[:, 0] <= chance_won - chance_lost) & (chance_won - chance_lost <= ends[:, 1]))
        assert held > 0.95 - 4 * np.sqrt(0.95 * 0.05 / 4000)


@given(seed=st.integers(0, 10**6), total=st.integers(12, 200))
def test_scores_are_scikit_learns(seed: int, total: int) -> None:
    random = np.random.default_rng(seed)
    labels = tuple("abcdefg")
    targets = random.integers(0, 7, total)
    logits = random.normal(0, 2, (total, 7)) + 2 * np.eye(7)[targets]
    answers = _answers(_Named(labels), logits)
    found = scores(answers, targets)
    numbers, shares = found.numbers, answers.shares.astype(np.float64)
    every = range(7)
    np.testing.assert_array_equal(found.confusion[:, :7], confusion_matrix(targets, answers.found, labels=every))
    assert numbers["accuracy"]["share"] == np.mean(answers.found == targets)
    assert numbers["top_k"]["share"] == pytest.approx(top_k_accuracy_score(targets, shares, k=5, labels=every))
    normal = shares / shares.sum(axis=1, keepdims=True)
    assert numbers["log_loss"] == pytest.approx(log_loss(targets, normal, labels=every), rel=1e-5)
    assert numbers["brier"] == pytest.approx(brier_score_loss(targets, normal, labels=every, scale_by_half=False), rel=1e-5)
    shown = np.unique(targets)
    precision, recall, f1, support = precision_recall_fscore_support(
        targets, answers.found, labels=list(every), zero_division=0
    )
    for index, entry in enumerate(found.classes):
        wanted = (precision[index], recall[index], f1[index], support[index])
        assert (entry["precision"], entry["recall"], entry["f1"], entry["pictures"]) == pytest.approx(wanted)
    assert numbers["balanced_accuracy"] == pytest.approx(np.mean(recall[shown]))
    if set(answers.found) <= set(shown):
        assert numbers["balanced_accuracy"] == pytest.approx(balanced_accuracy_score(targets, answers.found))


@given(seed=st.integers(0, 10**6))
def test_calibration_error_is_the_sum_over_the_stated_bins(seed: int) -> None:
    random = np.random.default_rng(seed)
    targets = random.integers(0, 3, 300)
    answers = _answers(_Named(("a", "b", "c")), random.normal(0, 2, (300, 3)))
    sure, right = answers.shares.max(axis=1).astype(np.float64), answers.found == targets
    places = np.digitize(sure, np.arange(1, BINS) / BINS, right=True)  # open below, closed above
    sums = [abs(np.sum(sure[places == b]) - np.sum(right[places == b])) for b in range(BINS)]
    assert scores(answers, targets).numbers["expected_calibration_error"] == pytest.approx(np.sum(sums) / 300)


def test_no_answer_is_wrong_and_counted() -> None:
    answers = _answers(_Named(("a", "b")), np.array([[3.0, 0.0], [0.0, 3.0]]))
    answers.shares[1] = 0
    answers.found[1] = NO_ANSWER
    found = scores(answers, np.array([0, 0]))
    assert found.numbers["accuracy"]["right"] == found.numbers["top_k"]["right"] == found.numbers["no_answer"] == 1
    assert found.confusion.tolist() == [[1, 0, 1], [0, 0, 0]]


def test_models_are_compared_on_what_both_could_read() -> None:
    targets = np.array([0, 1, 0, 1])
    ours = _answers(_Named(("a", "b")), np.array([[1.0, 0], [0, 1.0], [0, 1.0], [0, 1.0]]))
    full = _answers(_Named(("a", "b")), np.array([[1.0, 0], [1.0, 0], [1.0, 0], [0, 1.0]]))
    other = Answers(full.manifest, {}, np.array([0, 1, 3]), {}, full.shares[[0, 1, 3]], full.found[[0, 1, 3]])
    found = compared(ours, other, targets)
    assert (found["pictures"], found["only_ours_right"], found["only_theirs_right"]) == (3, 1, 0)
    assert found["agreement"] == pytest.approx(2 / 3)
    assert found["difference"] == pytest.approx(1 / 3)


class _Named:
    """As much of a manifest as scores need."""

    name, precision = "named", "fp32"

    def __init__(self, labels: tuple[str, ...]) -> None:
        self.labels = labels


def test_page_card_and_json_tell_the_same(
    bundles: Bundles, data: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    out = tmp_path / "out"
    words = ["report", str(bundles("mnist-gma").path), "--data", str(data), "-o", str(out), "--threads", "1"]
    assert main([*words, "--against", str(bundles("mnist-ssog").path), "--license", "apache-2.0", "--mistakes", "3"]) == 0
    said = capsys.readouterr()
    assert "left out: 1 of 41 pictures cannot be read, the first is 3/broken.png" in said.err
    document = json.loads((out / "report.json").read_text())
    accuracy = document["scores"]["accuracy"]["share"]
    assert document["data"]["pictures"] == 40
    assert sum(pair["pictures"] for pair in document["confusion"]) == 40
    assert f"{100 * accuracy:.2f} %" in said.out
    text = (out / "report.html").read_text()
    assert f"{100 * accuracy:.2f} %" in text
    assert text.count("data:image/png;base64,") == text.count(" alt=") == 5 + 3
    assert not re.findall(r"(?:src|href)=\"(?!data:)", text)
    front, _, body = (out / "README.md").read_text().removeprefix("---\n").partition("\n---\n")
    metadata = yaml.safe_load(front)
    (model,) = metadata["model-index"]
    (result,) = model["results"]
    assert (metadata["license"], metadata["pipeline_tag"]) == ("apache-2.0", "image-classification")
    assert (result["task"]["type"], result["dataset"]["type"]) == ("image-classification", "strokes")
    assert {m["type"]: m["value"] for m in result["metrics"]}["accuracy"] == pytest.approx(accuracy, abs=1e-6)
    for image in re.findall(r"!\[[^]]*\]\(([^)]+)\)", body):
        assert (out / image).is_file()
    assert document["compared"][0]["model"] == "mnist-ssog"
    assert len(document["attention"]["heads"]) == 2 * 4


def test_a_second_report_leaves_nothing_of_the_first(tmp_path: Path) -> None:
    write_files(tmp_path, {"differences.png": b"1", "confusion.png": b"1", "report.html": b"1"})
    (tmp_path / "notes.txt").write_text("mine")
    write_files(tmp_path, {"confusion.png": b"2", "report.html": b"2"})
    assert sorted(path.name for path in tmp_path.iterdir()) == ["confusion.png", "notes.txt", "report.html"]
    assert (tmp_path / "report.html").read_bytes() == b"2"


@pytest.mark.parametrize(
    ("words", "fault"),
    [
        (["--data", "{tmp}/none"], "the picture folder {tmp}/none does not exist"),
        (["--data", "{tmp}"], "{tmp} has no pictures in folders: lay it out as root/label/picture"),
        (["--data", "{tmp}/odd"], "has the class folder 'ten', which is none of the model's labels"),
        (["--data", "{tmp}/bad"], "none of the 1 pictures of {tmp}/bad can be read: give others with --data"),
        (["--data", "{data}", "-o", "{bundle}/sub"], "the report cannot lie in {bundle}/sub, inside the bundle"),
        (["--data", "{data}", "-o", "{tmp}/a/b"], "the folder {tmp}/a does not exist, make it first"),
        (["--data", "{data}", "-o", "{tmp}/mine"], "{tmp}/mine has a README.md that is no report's"),
        (["--data", "{data}", "--mistakes", "-1"], "--mistakes is -1: give 0 or more"),
        (["--data", "{data}", "--against", "{tmp}/none"], "{tmp}/none does not exist: make a bundle"),
    ],
)
def test_refusals_are_one_sentence_and_write_nothing(
    bundles: Bundles, data: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str], words: list[str], fault: str
) -> None:
    for folder in ("odd/ten", "bad/3"):
        (tmp_path / folder).mkdir(parents=True)
        (tmp_path / folder / "a.png").write_bytes(b"no picture")
    (tmp_path / "mine").mkdir()
    (tmp_path / "mine" / "README.md").write_text("mine")
    before = sorted(tmp_path.rglob("*"))
    bundle = bundles("mnist-gma").path
    places = {"tmp": tmp_path, "data": data, "bundle": bundle}
    given = [word.format(**places) for word in words]
    output = [] if "-o" in given else ["-o", str(tmp_path / "out")]
    assert main(["report", str(bundle), *output, *given, "--threads", "1"]) in (1, 2)
    error = capsys.readouterr().err
    assert fault.format(**places) in error
    assert error.count("\n") == 1
    assert sorted(tmp_path.rglob("*")) == before


def test_a_model_that_reads_more_than_pictures_is_refused(
    bundles: Bundles, data: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    bundle = bundles("mnist-gma")
    age = FurtherInput(name="age", dtype="float32", shape=(bundle.manifest.input.shape[0], 1), low=0, high=1)
    with writing_bundle(tmp_path / "wide") as draft:
        for name in bundle.manifest.files:
            (draft.folder / name).write_bytes(bundle.read(name))
        draft.finish(lambda files: bundle.manifest.model_copy(update={"files": files, "further_inputs": (age,)}))
    assert main(["report", str(tmp_path / "wide"), "--data", str(data), "-o", str(tmp_path / "out")]) == 2
    assert "a report shows pictures: no labelled data with several inputs is read" in capsys.readouterr().err


def test_without_matplotlib_it_says_what_to_install(
    bundles: Bundles, data: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setitem(sys.modules, "matplotlib", None)
    assert main(["report", str(bundles("mnist-gma").path), "--data", str(data), "-o", str(tmp_path / "out")]) == 1
    assert "figures need matplotlib: install gaussport[explain]" in capsys.readouterr().err
