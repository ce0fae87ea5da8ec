"""Texts on every route: as one body, in JSON, as files, as tensors; long ones, hostile ones, many at once."""

import shutil
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import httpx
import numpy as np
import pytest
import tritonclient.http as triton
from hypothesis import given, settings
from hypothesis import strategies as st

from gaussport.models.text import Tokenization
from gaussport.serving.errors import STATUS
from tests.serving.conftest import Server, encoded, picture, running, write_tiny
from tests.serving.texts import SPEC, WINDOW, in_order, logits_of, probabilities_of, softmax, write_texts

PLAIN = {"Content-Type": "text/plain; charset=utf-8"}
BYTES = {"Content-Type": "application/octet-stream"}
LONGEST = 4000


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("bundles")


@pytest.fixture(scope="module")
def served(folder: Path) -> Iterator[Server]:
    first = SPEC.model_copy(update={"long_documents": "truncate"})
    refuses = SPEC.model_copy(update={"long_documents": "refuse"})
    bundles = (
        write_texts(folder / "texts"),
        write_texts(folder / "first", "first", first, streams=False),
        write_texts(folder / "short", "short", refuses, streams=False),
        write_tiny(folder / "tiny"),
    )
    limits = ("--max-body-mb", "1", "--max-tokens", str(LONGEST), "--max-images", "40", "--queue-size", "1000")
    with running(*bundles, options=limits) as server:
        yield server


@pytest.fixture
def http(served: Server) -> Iterator[httpx.Client]:
    with served.http() as client:
        yield client


def results(response: httpx.Response) -> list[dict[str, Any]]:
    assert response.status_code == 200, response.text
    found: list[dict[str, Any]] = response.json()["results"]
    return found


def close(result: dict[str, Any], text: bytes | str) -> None:
    data = text.encode() if isinstance(text, str) else text
    np.testing.assert_allclose(in_order(result["predictions"]), probabilities_of(data), atol=1e-5)
    assert result["tokens"] == len(data)


def refused(response: httpx.Response, status: int, code: str, words: str = "") -> None:
    content = response.json()
    assert (response.status_code, content["code"]) == (status, code), response.text
    assert STATUS[code] == status
    assert words in content["error"]
    assert content["error"].isprintable()


# One text in each body


@pytest.mark.parametrize("text", ["a", "Grüße, 世界", "nul \0 inside", "🙂" * 50])
def test_a_text_in_every_body(text: str, http: httpx.Client) -> None:
    bodies: list[dict[str, Any]] = [
        {"content": text.encode(), "headers": PLAIN},
        {"content": text.encode(), "headers": {"Content-Type": "text/markdown"}},
        {"content": text.encode("utf-16"), "headers": {"Content-Type": "text/plain; charset=UTF-16"}},
        {"content": text.encode(), "headers": BYTES},
        {"json": {"text": text}},
        {"json": {"texts": [text]}},
        {"files": {"file": ("a.txt", text.encode(), "text/plain")}},
        {"files": {"file": ("a.txt", text.encode("utf-16"), "text/plain; charset=utf-16")}},
    ]
    for body in bodies:
        response = http.post("/v1/classify", **body)
        (result,) = results(response)
        close(result, text)
        assert result["windows"] == 1
        assert result["warnings"] == []
        assert response.json()["timing_ms"].keys() == {"queue", "decode", "inference", "total"}


@given(data=st.binary(min_size=1, max_size=3 * WINDOW))
@settings(max_examples=20, deadline=None)
def test_bytes_are_classified_whatever_they_are(data: bytes, served: Server) -> None:
    with served.http() as http:
        response = http.post("/v1/classify", content=data, headers=BYTES)
    if data.startswith((b"\xff\xd8\xff", b"\x89PNG\r\n\x1a\n")):
        return refused(response, 415, "unsupported_media_type")
    return close(results(response)[0], data)


def test_charsets_are_heeded(http: httpx.Client) -> None:
    latin = http.post("/v1/classify", content="é".encode("latin-1"), headers={"Content-Type": "text/plain; charset=latin1"})
    close(results(latin)[0], "é")
    for name in ("klingon", "rot13", "unicode_escape", "idna", "x" * 200, "\xff"):
        response = http.post(
            "/v1/classify", content=b"a", headers={b"Content-Type": f"text/plain; charset={name}".encode("latin-1")}
        )
        refused(response, 415, "unsupported_media_type", "send the text as UTF-8")


def test_several_texts_each_with_its_own_error(http: httpx.Client) -> None:
    texts = ["one", "", "three" * 200]
    found = results(http.post("/v1/classify", json={"texts": texts}))
    close(found[0], "one")
    assert found[1]["error"]["code"] == "empty_text"
    close(found[2], texts[2])
    parts: Any = [
        ("file", ("a.txt", b"one")),
        ("file", ("b.png", encoded(picture(1)), "image/png")),
        ("file", ("c", b"\xff\xfe")),
    ]
    found = results(http.post("/v1/classify", files=parts))
    close(found[0], "one")
    assert found[1]["error"]["code"] == "unsupported_media_type"
    close(found[2], b"\xff\xfe")


# Long ones


def test_a_long_text_is_read_in_windows(http: httpx.Client) -> None:
    text = bytes(np.random.default_rng(1).integers(0, 256, 1234, np.uint8))
    (result,) = results(http.post("/v1/classify", content=text, headers=BYTES))
    close(result, text)
    assert result["windows"] == 6
    (warning,) = result["warnings"]
    assert "1,234 tokens and the model reads 400 at once: the answer is the mean of 6 windows, one every 200" in warning


def test_a_long_text_is_cut_or_refused_as_the_bundle_says(http: httpx.Client) -> None:
    text = bytes(range(256)) * 3
    (result,) = results(http.post("/v1/classify?model=first", content=text, headers=BYTES))
    np.testing.assert_allclose(in_order(result["predictions"]), softmax(logits_of(text[:WINDOW])), atol=1e-5)
    assert "the rest was not read" in result["warnings"][0]
    response = http.post("/v1/classify?model=short", content=text, headers=BYTES)
    refused(response, 413, "text_too_long", "768 tokens and the model reads 400")


def test_a_text_of_too_many_tokens_is_refused(http: httpx.Client) -> None:
    close(results(http.post("/v1/classify", content=b"x" * LONGEST, headers=BYTES))[0], b"x" * LONGEST)
    refused(http.post("/v1/classify", content=b"x" * (LONGEST + 1), headers=BYTES), 413, "text_too_long", "4,000 tokens")
    refused(http.post("/v1/classify", json={"text": "é" * LONGEST}), 413, "text_too_long")


def test_a_body_of_100_mb_is_refused(http: httpx.Client) -> None:
    def endless() -> Iterator[bytes]:
        for _ in range(100):
            yield b"a" * 1_000_000

    refused(http.post("/v1/classify", content=endless(), headers=PLAIN), 413, "body_too_large")


# Hostile ones


@pytest.mark.parametrize(
    ("body", "status", "code", "words"),
    [
        ({"content": b"", "headers": PLAIN}, 400, "empty_body", "send a text"),
        ({"json": {"text": ""}}, 400, "empty_text", "at least one character"),
        ({"files": {"file": ("a.txt", b"")}}, 400, "empty_text", ""),
        ({"content": b"a\xff", "headers": PLAIN}, 400, "invalid_text", "not utf-8 at byte 1"),
        ({"content": b"\xc3", "headers": {"Content-Type": "text/plain"}}, 400, "invalid_text", ""),
        ({"content": rb'{"text": "\ud800"}', "headers": {"Content-Type": "application/json"}}, 400, "malformed_json", ""),
        ({"content": b'{"text": "\xff"}', "headers": {"Content-Type": "application/json"}}, 400, "malformed_json", ""),
        ({"json": {"image": "AAAA"}}, 400, "malformed_request", "the model reads text"),
        ({"json": {"text": 1}}, 400, "malformed_request", ""),
        ({"json": {"texts": []}}, 400, "malformed_request", ""),
        ({"json": {"texts": ["a"], "text": "b"}}, 400, "malformed_request", ""),
        ({"json": ["a"]}, 400, "malformed_request", ""),
        ({"json": {"texts": ["a"] * 41}}, 400, "too_many_texts", "the limit is 40"),
        ({"content": encoded(picture(1)), "headers": {"Content-Type": "image/png"}}, 415, "unsupported_media_type", ""),
        ({"content": encoded(picture(1)), "headers": BYTES}, 415, "unsupported_media_type", "a picture (PNG)"),
        ({"files": {"file": ("a.jpg", encoded(picture(1), "JPEG"), "image/jpeg")}}, 415, "unsupported_media_type", ""),
        ({"data": {"text": "a"}}, 415, "unsupported_media_type", "send text/plain"),
        ({"files": {"other": ("a.txt", b"a")}}, 400, "malformed_multipart", "file"),
    ],
)
def test_what_is_refused(body: dict[str, Any], status: int, code: str, words: str, http: httpx.Client) -> None:
    refused(http.post("/v1/classify", **body), status, code, words)


def test_a_text_for_a_model_of_pictures_is_refused(http: httpx.Client) -> None:
    refused(http.post("/v1/classify?model=tiny", content=b"hello", headers=PLAIN), 415, "unsupported_media_type")
    refused(http.post("/v1/classify?model=tiny", json={"text": "hello"}), 400, "malformed_request", "image")


# The protocol


def test_metadata_and_configuration(http: httpx.Client) -> None:
    assert http.get("/v2/models/texts").json()["inputs"] == [{"name": "tokens", "datatype": "INT64", "shape": [-1, -1]}]
    config = http.get("/v2/models/texts/config").json()
    assert config["input"] == [{"name": "tokens", "data_type": "TYPE_INT64", "dims": [-1]}]
    assert config["parameters"]["unlisted_input"] == {"string_value": "text BYTES [-1]"}
    model = http.get("/v1/models").json()["models"][0]
    assert (model["reads"], model["tokenization"]["max_tokens"]) == ("text", WINDOW)


@pytest.mark.parametrize("binary", [True, False])
def test_tritons_own_client(served: Server, binary: bool) -> None:
    texts = ["one", "of many " * 90, "three"]
    client = triton.InferenceServerClient(served.url.removeprefix("http://"))
    as_text = triton.InferInput("text", [3], "BYTES")
    as_text.set_data_from_numpy(np.array([text.encode() for text in texts], dtype=object), binary_data=binary)
    found = client.infer("texts", [as_text]).as_numpy("logits")
    rows = np.full((3, 720), 256, np.int64)
    for row, text in zip(rows, texts, strict=True):
        row[: len(text)] = np.frombuffer(text.encode(), np.uint8)
    as_tokens = triton.InferInput("tokens", [3, 720], "INT64")
    as_tokens.set_data_from_numpy(rows, binary_data=binary)
    np.testing.assert_array_equal(client.infer("texts", [as_tokens]).as_numpy("logits"), found)
    client.close()
    np.testing.assert_allclose(found[0], logits_of(b"one"), atol=1e-5)
    for row, text in zip(found, texts, strict=True):
        np.testing.assert_allclose(softmax(row.astype(float)), probabilities_of(text.encode()), atol=1e-5)


@pytest.mark.parametrize(
    ("tensor", "words"),
    [
        ({"name": "tokens", "datatype": "INT64", "shape": [1, 2], "data": [1, 257]}, "from 0 to 256"),
        ({"name": "tokens", "datatype": "INT64", "shape": [1, 2], "data": [-1, 2]}, "from 0 to 256"),
        ({"name": "tokens", "datatype": "INT64", "shape": [1, 2], "data": [2**63, 2]}, "beyond 64 bits"),
        (
            {"name": "tokens", "datatype": "INT64", "shape": [2, 2], "data": [1, 2, 256, 256]},
            "row 1 of tokens is padding alone",
        ),
        ({"name": "tokens", "datatype": "INT64", "shape": [1, 3], "data": [1, 256, 2]}, "the padding 256 before a token"),
        ({"name": "tokens", "datatype": "INT64", "shape": [1, 2], "data": [1.0, 2]}, "whole numbers"),
        ({"name": "tokens", "datatype": "INT64", "shape": [3], "data": [1, 2, 3]}, "shape [N, length]"),
        ({"name": "tokens", "datatype": "INT64", "shape": [1, 0], "data": []}, "shape [N, length]"),
        ({"name": "tokens", "datatype": "INT32", "shape": [1, 2], "data": [1, 2]}, "must be INT64"),
        ({"name": "text", "datatype": "BYTES", "shape": [2], "data": ["a"]}, "announces 2 texts and has 1"),
        ({"name": "text", "datatype": "BYTES", "shape": [1], "data": [1]}, "must be texts"),
        ({"name": "text", "datatype": "INT64", "shape": [1], "data": [1]}, "must be BYTES"),
        ({"name": "image", "datatype": "BYTES", "shape": [1], "data": ["AAAA"]}, "send tokens or text"),
    ],
)
def test_tensors_that_are_refused(tensor: dict[str, Any], words: str, http: httpx.Client) -> None:
    response = http.post("/v2/models/texts/infer", json={"inputs": [tensor]})
    assert response.status_code == 400, response.text
    assert words in response.json()["error"]


def test_empty_texts_and_bare_rows_are_refused(http: httpx.Client) -> None:
    tensor = {"name": "text", "datatype": "BYTES", "shape": [1], "data": [""]}
    refused(http.post("/v2/models/texts/infer", json={"inputs": [tensor]}), 400, "empty_text")
    bare = http.post("/v2/models/texts/infer", content=bytes(16), headers={"Inference-Header-Content-Length": "0"})
    refused(bare, 400, "malformed_request", "has no length")


# Under load


def test_under_load_each_answer_is_that_of_its_text_alone(served: Server, http: httpx.Client) -> None:
    random = np.random.default_rng(3)
    lengths = np.exp(random.uniform(0, np.log(900), 150)).astype(int)
    texts = [bytes(random.integers(0, 256, length, np.uint8)) for length in lengths]

    def ask(text: bytes) -> dict[str, Any]:
        return results(http.post("/v1/classify", content=text, headers=BYTES))[0]

    with ThreadPoolExecutor(24) as threads:
        answers = list(threads.map(ask, texts))
    for text, answer in zip(texts, answers, strict=True):
        close(answer, text)
    counts = {
        line.split()[0]: float(line.split()[1])
        for line in http.get("/metrics").text.splitlines()
        if line.startswith("gaussport_text_tokens_total")
    }
    real, computed = (counts[f'gaussport_text_tokens_total{{kind="{k}",model="texts"}}'] for k in ("text", "computed"))
    assert real <= computed <= 1.5 * real


def test_a_tokenizer_of_words_in_a_zip(tmp_path: Path) -> None:
    """Its file is needed on disk, wherever the bundle is; a text that is no UTF-8 is refused there."""
    tokenizers = pytest.importorskip("tokenizers")
    words = ["[PAD]", "[UNK]", "one", "two", "three", "four"]
    tokenizer = tokenizers.Tokenizer(
        tokenizers.models.WordLevel({word: number for number, word in enumerate(words)}, unk_token="[UNK]")
    )
    tokenizer.pre_tokenizer = tokenizers.pre_tokenizers.Whitespace()
    tokenizer.save(str(tmp_path / "tokenizer.json"))
    spec = Tokenization(kind="tokenizers", file="tokenizer.json", vocabulary=257, pad=256, max_tokens=5, stride=2)
    folder = write_texts(tmp_path / "words", "words", spec, streams=False, beside=[tmp_path / "tokenizer.json"])
    shutil.make_archive(str(tmp_path / "words"), "zip", folder)
    with running(tmp_path / "words.zip") as server, server.http() as http:
        (result,) = results(http.post("/v1/classify", json={"text": "one two many three four one two"}))
        tokens = bytes([2, 3, 1, 4, 5, 2, 3])
        np.testing.assert_allclose(in_order(result["predictions"]), probabilities_of(tokens, spec), atol=1e-5)
        assert (result["tokens"], result["windows"]) == (7, 2)
        refused(http.post("/v1/classify", content=b"one \xff", headers=BYTES), 400, "invalid_text", "not UTF-8 at byte 4")
        refused(http.post("/v1/classify", json={"text": "   "}), 400, "empty_text")
