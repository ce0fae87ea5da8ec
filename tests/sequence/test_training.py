"""Training on texts learns what is in them, sees each document once an epoch, goes on where it was stopped, and measures as
it will be served."""

import json
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from gaussport.cli import main
from gaussport.errors import DataError, UsageError
from gaussport.models.checkpoint import SequenceCheckpoint, read_any_checkpoint
from gaussport.models.sequence import SequenceConfig, sequence_preset
from gaussport.models.text import Tokenization, encode, join, windows
from gaussport.models.training import TrainingSettings
from gaussport.models.training.loop import Step
from gaussport.models.training.sequences import probabilities, sequence_accuracy, train_on_sequences
from gaussport.models.training.token_rows import HALVINGS, TokenRows
from tests.sequence.subjects import classifier

WORDS = {"north": b"ice snow ", "south": b"sun sand "}
QUICK = TrainingSettings(epochs=6, batch_size=4, warmup_epochs=1, learning_rate=1e-2)


def config(preset: str = "gma-bytes-tiny-causal") -> SequenceConfig:
    return sequence_preset(preset, classes=2)


def two_kinds(count: int, seed: int) -> TokenRows:
    """Documents of noise with a word of their kind somewhere."""
    draw = np.random.RandomState(seed)
    rows = []
    for index in range(count):
        noise = draw.randint(97, 123, size=draw.randint(30, 150)).astype(np.int32)
        word = np.frombuffer(list(WORDS.values())[index % 2] * 2, np.uint8).astype(np.int32)
        at = draw.randint(0, len(noise))
        rows.append(np.concatenate([noise[:at], word, noise[at:]]))
    return TokenRows(tuple(rows), torch.arange(count) % 2)


@pytest.mark.parametrize("preset", ["gma-bytes-tiny", "gma-bytes-tiny-causal", "dot-bytes-tiny"])
def test_training_improves(preset: str) -> None:
    reached: list[float] = []

    def watch(step: Step) -> None:
        if step.held_out is not None:
            reached.append(step.held_out)

    spec = Tokenization.of_bytes(256)
    model = train_on_sequences(config(preset), two_kinds(200, 0), two_kinds(60, 1), spec, QUICK, watch=watch)
    assert not model.training
    assert sequence_accuracy(model, two_kinds(60, 1), spec) > 0.8  # chance is 0.5
    assert len(reached) == QUICK.epochs


@given(count=st.integers(1, 300), batch_size=st.integers(1, 9), seed=st.integers(0, 99))
def test_an_epoch_has_each_document_once_in_batches_of_about_one_size(count: int, batch_size: int, seed: int) -> None:
    spec, model = Tokenization.of_bytes(256), config()
    documents = TokenRows(tuple(np.full(100, n % 256, np.int32) for n in range(count)), torch.arange(count))
    seen: list[int] = []
    batches = list(documents.batches(model, spec, batch_size, torch.Generator().manual_seed(seed)))
    assert len(batches) == len(documents.plan(batch_size))
    for number, (tokens, targets) in enumerate(batches):
        length = model.trained_length >> (number % HALVINGS)
        assert tokens.shape == (len(targets), length)
        assert tokens.numel() <= batch_size * model.trained_length
        assert (tokens == (targets % 256)[:, None]).all()
        seen += targets.tolist()
    assert sorted(seen) == list(range(count))


def test_a_cut_begins_at_the_start_about_half_the_time_and_ends_within() -> None:
    documents = TokenRows(tuple(np.arange(200, dtype=np.int32) for _ in range(800)), torch.arange(800))
    spec = Tokenization.of_bytes(256)
    starts = [int(row[0]) for tokens, _ in documents.batches(config(), spec, 8, torch.Generator()) for row in tokens]
    assert 0.4 < np.mean([start == 0 for start in starts]) < 0.6
    assert max(starts) <= 200 - config().trained_length // 8
    assert max(starts) > 150


def test_a_document_is_answered_as_it_will_be_served() -> None:
    model, spec = classifier("gma-bytes-tiny-causal"), Tokenization(max_tokens=50, stride=30)
    documents = two_kinds(9, 3)
    found = probabilities(model, documents, spec)
    for tokens, probability in zip(documents.documents, found, strict=True):
        rows = windows(encode(bytes(tokens.tolist()), spec), spec)
        with torch.inference_mode():
            each = [torch.softmax(model(torch.from_numpy(row)[None]).double(), -1)[0].numpy() for row in rows]
        np.testing.assert_allclose(probability, join(each, [len(row) for row in rows]), atol=1e-6)


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    for name, word in WORDS.items():
        place = tmp_path / "texts" / name
        place.mkdir(parents=True)
        for index in range(6):
            (place / f"{index}.txt").write_bytes(word * (3 + index))
    return tmp_path / "texts"


TRAIN = ["train", "--preset", "gma-bytes-tiny-causal", "--epochs", "2", "--batch-size", "2"]


def test_the_command_trains_on_texts(folder: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    out = tmp_path / "a.safetensors"
    assert main([*TRAIN, "--data", str(folder), "-o", str(out), "--json"]) == 0
    result = json.loads(capsys.readouterr().out)
    read = read_any_checkpoint(out)
    assert isinstance(read, SequenceCheckpoint)
    assert (result["trained_on"], result["held_out"]) == (10, 2)
    assert read.metrics == {"held_out_accuracy": result["held_out_accuracy"], "held_out_documents": 2.0}
    assert read.labels == ("north", "south")
    assert read.preprocessing == Tokenization.of_bytes(4 * read.config.trained_length)
    first = out.read_bytes()
    assert main([*TRAIN, "--data", str(folder), "-o", str(out), "--force"]) == 0
    assert out.read_bytes() == first


def test_a_stopped_run_goes_on_to_the_same_weights(tmp_path: Path) -> None:
    spec, documents, held_out = Tokenization.of_bytes(256), two_kinds(40, 0), two_kinds(8, 1)
    settings = replace(QUICK, epochs=3)
    whole = train_on_sequences(config(), documents, held_out, spec, settings)

    class Stopped(Exception):  # noqa: N818 - no error
        pass

    def stop(step: Step) -> None:
        if step.epoch == 3:
            raise Stopped

    state = tmp_path / "state"
    with pytest.raises(Stopped):
        train_on_sequences(config(), documents, held_out, spec, settings, state, watch=stop)
    resumed = train_on_sequences(config(), documents, held_out, spec, settings, state, resume=True)
    for name, tensor in whole.state_dict().items():
        assert torch.equal(tensor, resumed.state_dict()[name]), name


def test_digits_are_no_texts(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main([*TRAIN, "-o", str(tmp_path / "a.safetensors")]) == DataError.exit_code
    assert "the data folder mnist does not exist: give a folder of root/class/document" in capsys.readouterr().err
    words = ["train", "--preset", "gma-novel", "-o", str(tmp_path / "a.safetensors")]
    assert main(words) == UsageError.exit_code
    error = capsys.readouterr().err
    assert "there is no preset 'gma-novel'" in error
    assert "gma-manpages" in error
    assert "ssog-mnist" in error
