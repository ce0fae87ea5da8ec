"""The shipped classifier of languages as a bundle: its real weights, exported, equal the oracle in float64, in ONNX Runtime
and in PyTorch, alone, padded and as a stream."""

import numpy as np
import pytest
import torch
from numpy.typing import NDArray

from gaussport.export.bundle.manifest import MODEL_FILE, STEP_FILE
from gaussport.export.bundle.store import Bundle
from gaussport.export.bundle.stream import GIVEN, LEFT
from gaussport.export.pipeline import export_checkpoint
from gaussport.models import zoo
from gaussport.models.attention.gma import GMAConfig
from gaussport.models.checkpoint import SequenceCheckpoint, build_classifier, read_any_checkpoint
from gaussport.models.checkpoint.wishes import Wishes
from gaussport.models.text import encode, pad_batch
from gaussport.models.text.wishes import TextWishes
from gaussport.onnx_runtime import onnxruntime
from tests.sequence.numpy_forward import logits
from tests.sequence.test_zoo import SENTENCES

TOLERANCE = 5e-5  # of a logit; the largest is about ten
TEXTS = (*SENTENCES.values(), "x", " ".join(SENTENCES.values()))


@pytest.fixture(scope="module")
def checkpoint() -> SequenceCheckpoint:
    read = read_any_checkpoint(zoo.path("manpages-gma"))
    assert isinstance(read, SequenceCheckpoint)
    return read


@pytest.fixture(scope="module")
def bundle(tmp_path_factory: pytest.TempPathFactory) -> Bundle:
    wishes = Wishes(text=TextWishes(max_tokens=65))  # how far its own proof runs; the graph has no limit
    return export_checkpoint(
        zoo.path("manpages-gma"), tmp_path_factory.mktemp("zoo") / "manpages", wishes=wishes, max_batch=1
    )


@pytest.fixture(scope="module")
def rows(checkpoint: SequenceCheckpoint) -> list[NDArray[np.int64]]:
    return [encode(text, checkpoint.preprocessing) for text in TEXTS]


@pytest.fixture(scope="module")
def expected(checkpoint: SequenceCheckpoint, rows: list[NDArray[np.int64]]) -> NDArray[np.float64]:
    """[texts, classes] of the oracle."""
    attention = checkpoint.config.attention
    assert isinstance(attention, GMAConfig)
    weights = {name: tensor.double().numpy() for name, tensor in checkpoint.state_dict.items()}
    constants = attention.epsilon, attention.variance_floor, checkpoint.config.norm_epsilon
    return np.stack([logits(weights, row.tolist(), True, *constants) for row in rows])


def test_the_bundle_agrees_with_the_oracle_alone_and_padded(
    bundle: Bundle, checkpoint: SequenceCheckpoint, rows: list[NDArray[np.int64]], expected: NDArray[np.float64]
) -> None:
    session = onnxruntime.InferenceSession(bundle.read(MODEL_FILE), providers=["CPUExecutionProvider"])
    alone = np.concatenate([session.run(["logits"], {"tokens": row[None]})[0] for row in rows])
    np.testing.assert_allclose(alone, expected, rtol=0, atol=TOLERANCE)
    padded = pad_batch(rows, checkpoint.preprocessing)
    np.testing.assert_allclose(session.run(["logits"], {"tokens": padded})[0], expected, rtol=0, atol=TOLERANCE)
    with torch.inference_mode():
        torchs = build_classifier(checkpoint)(torch.from_numpy(padded)).numpy()
    np.testing.assert_allclose(torchs, expected, rtol=0, atol=TOLERANCE)
    assert bundle.manifest.labels == checkpoint.labels


def test_its_step_agrees_with_the_oracle_after_every_chunk(
    bundle: Bundle, rows: list[NDArray[np.int64]], expected: NDArray[np.float64]
) -> None:
    session = onnxruntime.InferenceSession(bundle.read(STEP_FILE), providers=["CPUExecutionProvider"])
    assert bundle.manifest.stream is not None
    parts = bundle.manifest.stream.state
    for row, whole in zip(rows, expected, strict=True):
        state = {part.name: np.zeros((1, *map(int, part.shape[1:])), part.dtype) for part in parts}
        for start in range(0, len(row), 37):
            given = {f"{GIVEN}{name}": array for name, array in state.items()}
            names = ["logits", *(f"{LEFT}{name}" for name in state)]
            running, *left = session.run(names, {"tokens": row[None, start : start + 37], **given})
            state = dict(zip(state, left, strict=True))
        np.testing.assert_allclose(running[0], whole, rtol=0, atol=TOLERANCE)
