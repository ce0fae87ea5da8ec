"""An exported bundle behind the server: what it classifies, streams and explains is what its module says."""

import asyncio
from collections.abc import Iterator
from typing import Any

import httpx
import numpy as np
import pytest

from gaussport.export.bundle.store import Bundle
from gaussport.models.sequence import SequenceClassifier
from gaussport.serving.app import build_app
from gaussport.serving.settings import Settings
from tests.text_export.conftest import LONGEST, answered

TEXT = bytes(np.random.default_rng(2).integers(0, 256, LONGEST, np.uint8))


@pytest.fixture(scope="module")
def ask(bundle: Bundle) -> Iterator[Any]:
    app = build_app([bundle.path], Settings(threads=1, decode_threads=1, max_delay_ms=0.0))
    with asyncio.Runner() as runner:
        lifespan = app.router.lifespan_context(app)
        runner.run(lifespan.__aenter__())
        http = httpx.AsyncClient(transport=httpx.ASGITransport(app), base_url="http://local")

        def request(method: str, path: str, **options: Any) -> httpx.Response:
            return runner.run(http.request(method, path, **options))

        try:
            yield request
        finally:
            runner.run(http.aclose())
            runner.run(lifespan.__aexit__(None, None, None))


def expected(module: SequenceClassifier, text: bytes) -> np.ndarray[Any, Any]:
    logits = answered(module, np.frombuffer(text, np.uint8).astype(np.int64)[np.newaxis])[0].astype(float)
    powers = np.exp(logits - logits.max())
    return np.asarray(powers / powers.sum())


def probabilities(predictions: list[dict[str, Any]]) -> list[float]:
    return [each["probability"] for each in sorted(predictions, key=lambda each: each["index"])]


def test_a_text_and_its_stream_are_the_modules_answer(ask: Any, module: SequenceClassifier) -> None:
    answer = ask("POST", "/v1/classify", content=TEXT).json()["results"][0]
    np.testing.assert_allclose(probabilities(answer["predictions"]), expected(module, TEXT), atol=1e-4)
    path = ask("POST", "/v1/streams").headers["location"]
    for start, end in ((0, 1), (1, 70), (70, 72), (72, len(TEXT))):
        answer = ask("POST", path, content=TEXT[start:end]).json()
        np.testing.assert_allclose(probabilities(answer["predictions"]), expected(module, TEXT[:end]), atol=1e-4)
    size = ask("GET", "/v1/models").json()["models"][0]["stream"]["bytes"]
    assert size == answer_bytes(module)


def answer_bytes(module: SequenceClassifier) -> int:
    return sum(part.numel() * part.element_size() for part in module.initial_state(1).values())


def test_a_text_is_explained(ask: Any, module: SequenceClassifier) -> None:
    text = "manual page, Grüße".encode()
    answer = ask("POST", "/v1/explain?tokens=true&heads=1", content=text).json()
    np.testing.assert_allclose(probabilities(answer["predictions"]), expected(module, text), atol=1e-4)
    assert "".join(answer["pieces"]) == text.decode()
    (layer,) = answer["layers"]
    (head,) = layer["heads"]
    assert (head["head"], answer["available"][0]["heads"]) == (1, 2)
    assert len(head["strongest"]) == len(head["shares"]) == answer["tokens"] == len(text)
    assert max(head["strongest"]) < layer["components"]
    assert all(0 < share <= 1 for share in head["shares"])
    assert len(head["components"]["top_tokens"]) == layer["components"]


@pytest.mark.parametrize(
    ("query", "body", "code"),
    [
        ("?format=png", b"a", "bad_parameter"),
        ("?seen=true", b"a", "bad_parameter"),
        ("?cell=0,0", b"a", "bad_parameter"),
        ("?heads=7", b"a", "bad_parameter"),
        ("?layers=nothing", b"a", "bad_parameter"),
        ("", b"a" * 16_385, "text_too_long"),
        ("", b"", "empty_body"),
        ("", b"\x89PNG\r\n\x1a\n", "unsupported_media_type"),
    ],
)
def test_explanations_that_are_refused(ask: Any, query: str, body: bytes, code: str) -> None:
    response = ask("POST", f"/v1/explain{query}", content=body)
    assert response.json()["code"] == code, response.text
    assert 400 <= response.status_code < 500
