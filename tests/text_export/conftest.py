"""A small causal classifier of bytes, exported once, a bidirectional one of words, and mutants of the former."""

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
import torch
from numpy.typing import NDArray

from gaussport.export.bundle.manifest import EXPLAIN_FILE, FileRecord, Manifest
from gaussport.export.bundle.store import Bundle, open_bundle, writing_bundle
from gaussport.export.model_file import serialize
from gaussport.export.pipeline import export_checkpoint
from gaussport.models.checkpoint import write_checkpoint
from gaussport.models.checkpoint.contents import SequenceCheckpoint
from gaussport.models.checkpoint.wishes import Wishes
from gaussport.models.sequence import SequenceClassifier
from gaussport.models.text import Tokenization
from gaussport.models.text.wishes import TextWishes
from tests.sequence.subjects import classifier

LABELS = ("ham", "spam", "eggs", "toast")
LONGEST, TRAINED, MAX_BATCH = 130, 32, 4


@pytest.fixture(autouse=True, scope="session")
def _one_thread() -> Iterator[None]:
    """ONNX Runtime follows. Two threads are slower when another job shares the cores."""
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(before)


@pytest.fixture(scope="session")
def module() -> SequenceClassifier:
    return classifier("gma-bytes-tiny-causal", depth=1, trained_length=TRAINED)


@pytest.fixture(scope="session")
def checkpoint(module: SequenceClassifier, tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("checkpoint") / "causal.safetensors"
    _write(path, module, Tokenization.of_bytes(4096))
    return path


@pytest.fixture(scope="session")
def bundle(checkpoint: Path, tmp_path_factory: pytest.TempPathFactory) -> Bundle:
    """Tests read it and write elsewhere."""
    wishes = Wishes(text=TextWishes(max_tokens=LONGEST))
    return export_checkpoint(checkpoint, tmp_path_factory.mktemp("bundle") / "causal", wishes=wishes, max_batch=MAX_BATCH)


@pytest.fixture(scope="session")
def words(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Path]:
    """The checkpoint of a bidirectional classifier of words, and its tokenizer."""
    tokenizers = pytest.importorskip("tokenizers")
    folder = tmp_path_factory.mktemp("words")
    known = ["[PAD]", "[UNK]", "a", "long", "manual", "page", "of", "many", "words"]
    vocabulary = {word: number for number, word in enumerate(known)}
    tokenizer = tokenizers.Tokenizer(tokenizers.models.WordLevel(vocabulary, unk_token="[UNK]"))
    tokenizer.pre_tokenizer = tokenizers.pre_tokenizers.Whitespace()
    tokenizer.save(str(folder / "words.json"))
    module = classifier("gma-bytes-tiny", depth=1, vocabulary=10, pad=0, trained_length=4)
    spec = Tokenization(kind="tokenizers", file="tokenizer.json", vocabulary=10, pad=0, max_tokens=9, stride=3)
    _write(folder / "words.safetensors", module, spec)
    return folder / "words.safetensors", folder / "words.json"


def _write(path: Path, module: SequenceClassifier, spec: Tokenization) -> None:
    write_checkpoint(
        path,
        SequenceCheckpoint(config=module.config, state_dict=module.state_dict(), preprocessing=spec, labels=LABELS),
    )


@pytest.fixture
def mutant(tmp_path: Path, bundle: Bundle) -> Callable[..., Path]:
    """`mutant(file, change)`: the bundle with one of its graphs changed, all hashes right."""

    def make(file: str, change: Callable[[onnx.ModelProto], object]) -> Path:
        model = onnx.load_model_from_string(bundle.read(file))
        change(model)
        with writing_bundle(tmp_path / "mutant") as draft:
            for name in set(bundle.manifest.files) - {EXPLAIN_FILE}:  # which belongs to the model as it was
                (draft.folder / name).write_bytes(bundle.read(name))
            (draft.folder / file).write_bytes(serialize(model))

            def listing(files: dict[str, FileRecord]) -> Manifest:
                return bundle.manifest.model_copy(update={"files": files})

            draft.finish(listing)
        return open_bundle(tmp_path / "mutant").path

    return make


@pytest.fixture(scope="session")
def texts(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder of labelled texts, some longer than a window."""
    root = tmp_path_factory.mktemp("texts")
    random = np.random.default_rng(5)
    for label in LABELS:
        (root / label).mkdir()
        for number, size in enumerate((1, 40, 500)):
            (root / label / f"{number}.txt").write_bytes(random.integers(0, 256, size, np.uint8).tobytes())
    return root


def answered(module: SequenceClassifier, tokens: NDArray[Any]) -> NDArray[np.float32]:
    with torch.no_grad():
        return np.asarray(module(torch.from_numpy(np.ascontiguousarray(tokens))).numpy())
