"""The shipped sequence classifier is what its card says: small, labelled, right about plain sentences, streaming, and equal
to its oracle in float64."""

import re

import numpy as np
import pytest
import torch

from gaussport.models import zoo
from gaussport.models.attention.gma import GMAConfig
from gaussport.models.checkpoint import SequenceCheckpoint, build_classifier, read_any_checkpoint
from gaussport.models.sequence import SequenceClassifier
from gaussport.models.text import encode
from tests.sequence.numpy_forward import logits

NAME = "manpages-gma"
LIMIT_BYTES = 2_000_000
SENTENCES = {
    "cs": "Tento příkaz vypíše obsah adresáře, a pokud není uveden žádný soubor, čte ze standardního vstupu.",
    "de": "Dieser Befehl gibt den Inhalt des Verzeichnisses aus und liest, falls keine Datei angegeben wird, die Eingabe.",
    "en": "This command prints what is in the directory, and when no file is given it reads from the standard input.",
    "es": "Esta orden muestra el contenido del directorio y, si no se indica ningún fichero, lee de la entrada estándar.",
    "fr": "Cette commande affiche le contenu du répertoire et, si aucun fichier n'est indiqué, lit l'entrée standard.",
    "ja": "このコマンドはディレクトリの内容を表示する。ファイルが指定されない場合は標準入力から読み込む。",
    "pl": "To polecenie wypisuje zawartość katalogu, a jeśli nie podano żadnego pliku, czyta ze standardowego wejścia.",
    "ru": "Эта команда выводит содержимое каталога, а если файл не указан, читает данные из стандартного ввода.",
}


@pytest.fixture(scope="module")
def checkpoint() -> SequenceCheckpoint:
    read = read_any_checkpoint(zoo.path(NAME))
    assert isinstance(read, SequenceCheckpoint)
    return read


@pytest.fixture(scope="module")
def model(checkpoint: SequenceCheckpoint) -> SequenceClassifier:
    return build_classifier(checkpoint)


def tokens(text: str, checkpoint: SequenceCheckpoint) -> torch.Tensor:
    return torch.from_numpy(encode(text, checkpoint.preprocessing))


def test_the_card_is_of_this_file(checkpoint: SequenceCheckpoint) -> None:
    text = zoo.path(NAME).with_suffix(".md").read_text(encoding="utf-8")
    card = {key.lower(): value for key, value in re.findall(r"^\| ([^|]+?) \| ([^|]+?) \|$", text, re.MULTILINE)}
    accuracy, count = checkpoint.metrics["held_out_accuracy"], int(checkpoint.metrics["held_out_documents"])
    assert card["held-out accuracy"].startswith(f"{accuracy:.1%} ({round(accuracy * count):,} of {count:,})")
    assert card["parameters"] == f"{sum(tensor.numel() for tensor in checkpoint.state_dict.values()):,}"
    assert card["licence"].startswith("Apache-2.0")
    for label in checkpoint.labels:
        assert re.search(rf"\b{label}\b", card["classes"])


def test_it_is_small_whole_and_streams(checkpoint: SequenceCheckpoint) -> None:
    assert zoo.path(NAME).stat().st_size < LIMIT_BYTES
    assert checkpoint.assumed == ()
    assert checkpoint.config.causal
    assert checkpoint.config.family == "gma"
    assert checkpoint.preprocessing.kind == "bytes"


def test_plain_sentences_are_in_their_language(model: SequenceClassifier, checkpoint: SequenceCheckpoint) -> None:
    with torch.inference_mode():
        found = {
            language: checkpoint.labels[int(model(tokens(text, checkpoint)[None]).argmax())]
            for language, text in SENTENCES.items()
        }
    wrong = {language: answer for language, answer in found.items() if answer != language}
    assert len(wrong) <= 1, wrong


def test_it_agrees_with_the_oracle(model: SequenceClassifier, checkpoint: SequenceCheckpoint) -> None:
    attention = checkpoint.config.attention
    assert isinstance(attention, GMAConfig)
    weights = {name: tensor.double().numpy() for name, tensor in checkpoint.state_dict.items()}
    for text in (*SENTENCES.values(), "x", " ".join(SENTENCES.values())):
        row = tokens(text, checkpoint)
        expected = logits(
            weights, row.tolist(), True, attention.epsilon, attention.variance_floor, checkpoint.config.norm_epsilon
        )
        with torch.inference_mode():
            np.testing.assert_allclose(model(row[None])[0].numpy(), expected, rtol=0, atol=5e-5)


def test_it_answers_byte_by_byte_as_it_does_the_whole(model: SequenceClassifier, checkpoint: SequenceCheckpoint) -> None:
    row, state = tokens(SENTENCES["fr"], checkpoint), model.initial_state(1)
    with torch.inference_mode():
        for byte in row:
            running, state = model.step(byte[None, None], state)
        torch.testing.assert_close(running, model(row[None]), atol=1e-4, rtol=1e-4)


def test_a_text_of_65536_bytes_takes_no_square_of_its_length(
    model: SequenceClassifier, checkpoint: SequenceCheckpoint
) -> None:
    """The largest tensor that anything in the forward pass makes grows with the length, not with its square."""
    largest = 0

    class Watching(torch.utils._python_dispatch.TorchDispatchMode):
        def __torch_dispatch__(self, func, types, args=(), kwargs=None):  # type: ignore[no-untyped-def]
            nonlocal largest
            out = func(*args, **(kwargs or {}))
            for tensor in out if isinstance(out, tuple | list) else [out]:
                if isinstance(tensor, torch.Tensor):
                    largest = max(largest, tensor.numel())
            return out

    text = (" ".join(SENTENCES.values()) * 100).encode()[:65_536]
    row = torch.from_numpy(encode(text, checkpoint.preprocessing))[None]
    with torch.inference_mode(), Watching():  # type: ignore[no-untyped-call]
        assert model(row).isfinite().all()
    assert row.shape == (1, 65_536)
    assert 65_536 * checkpoint.config.dim <= largest <= 65_536 * 64 * checkpoint.config.attention.heads
