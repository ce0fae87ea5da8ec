"""Manifests of models that read text: their fields, what contradicts itself, and what is for the other kind of bundle."""

import json
from collections.abc import Callable
from typing import Any

import pytest
from pydantic import ValidationError

from gaussport.errors import BundleError
from gaussport.export.bundle.manifest import STEP_FILE, FileRecord, Manifest
from gaussport.export.bundle.store import open_bundle, writing_bundle
from gaussport.export.bundle.stream import StreamSpec
from gaussport.models.text import Tokenization
from tests.bundle.conftest import MakeManifest

_FILE = {"bytes": 4, "sha256": "0" * 64}
_STATE: list[dict[str, Any]] = [
    {"name": "count", "dtype": "int64", "shape": ["batch"]},
    {"name": "blocks.0.memory", "dtype": "float32", "shape": ["batch", 2, 8, 4]},
]


@pytest.fixture
def document(manifest_of: MakeManifest) -> dict[str, Any]:
    """A text bundle's manifest, with a stream, as JSON."""
    content: dict[str, Any] = json.loads(manifest_of({}).model_dump_json())
    content["preprocessing"] = Tokenization.of_bytes(64).model_dump(mode="json")
    content["input"] = {"name": "tokens", "dtype": "int64", "shape": ["batch", "length"]}
    content["stream"] = {"state": _STATE, "bytes_per_stream": 8 + 4 * 64}
    content["files"] = {STEP_FILE: _FILE}
    return content


def test_a_text_bundle_is_read_back_as_it_was_written(document: dict[str, Any]) -> None:
    manifest = Manifest.model_validate_json(json.dumps(document))
    assert manifest.takes_text
    assert manifest.tokenization == Tokenization.of_bytes(64)
    assert manifest.stream is not None
    assert manifest.stream.bytes_per_stream == 264
    assert json.loads(manifest.model_dump_json()) == document
    assert StreamSpec.of(manifest.stream.state) == manifest.stream


def test_what_is_for_pictures_says_so_of_text_and_the_other_way_round(
    document: dict[str, Any], manifest_of: MakeManifest
) -> None:
    with pytest.raises(BundleError, match="tiny reads text, and this is for pictures"):
        _ = Manifest.model_validate_json(json.dumps(document)).preprocessing
    with pytest.raises(BundleError, match="tiny reads pictures, and this is for text"):
        _ = manifest_of({}).tokenization


def test_a_bundle_of_pictures_is_written_as_before_there_was_text(manifest_of: MakeManifest) -> None:
    written = json.loads(manifest_of({}).model_dump_json())
    assert {"front", "stream", "further_inputs"}.isdisjoint(written)
    assert written["preprocessing"]["size"] == [8, 8]
    assert list(written)[6:8] == ["preprocessing", "input"]


def _with(path: str, value: object) -> Callable[[dict[str, Any]], None]:
    def change(document: dict[str, Any]) -> None:
        *way, last = path.split(".")
        for part in way:
            document = document[part]
        document[last] = value

    return change


@pytest.mark.parametrize(
    ("path", "value", "fault"),
    [
        ("preprocessing.stride", 65, "stride is 65, more than a window's 64 tokens"),
        ("input.dtype", "float32", "is not tokens"),
        ("input.shape", ["batch", 64], "is not tokens"),
        ("input.shape", ["batch", "batch"], "is not tokens"),
        ("input.shape", ["batch"], "is not tokens"),
        ("files", {}, "a stream is stated exactly when there is step.onnx"),
        ("stream", None, "a stream is stated exactly when there is step.onnx"),
        ("stream.bytes_per_stream", 1, "is said to take 1 bytes but its parts 264"),
        ("stream.state", _STATE[:1] * 2, "two parts of the state have the same name"),
        ("stream.state", [{**_STATE[1], "shape": ["batch", 2, "heads", 4]}], "only its batch may vary"),
        ("stream.state", [{**_STATE[1], "shape": [1, 2, 8, 4]}], "of any batch"),
        ("stream.state", [{**_STATE[1], "dtype": "bool"}], "not float32 or int64"),
        ("stream.state", [], "at least 1 item"),
    ],
)
def test_a_contradiction_is_named(document: dict[str, Any], path: str, value: object, fault: str) -> None:
    _with(path, value)(document)
    with pytest.raises(ValidationError, match=fault):
        Manifest.model_validate_json(json.dumps(document))


def test_a_tokenizer_must_be_among_the_files(document: dict[str, Any]) -> None:
    document["preprocessing"] |= {"kind": "tokenizers", "file": "tokenizer.json", "vocabulary": 500, "pad": 0}
    with pytest.raises(ValidationError, match=r"tokenizer\.json, which makes the tokens, is not among the files"):
        Manifest.model_validate_json(json.dumps(document))
    document["files"]["tokenizer.json"] = _FILE
    assert Manifest.model_validate_json(json.dumps(document)).tokenization.file == "tokenizer.json"


def test_pictures_have_no_stream(manifest_of: MakeManifest) -> None:
    content = json.loads(manifest_of({}).model_dump_json())
    with pytest.raises(ValidationError, match="a model of pictures has a stream, which is for text"):
        Manifest.model_validate_json(json.dumps({**content, "stream": {"state": _STATE, "bytes_per_stream": 264}}))


def test_opening_a_bundle_names_the_field_at_fault(document: dict[str, Any], tmp_path: Any) -> None:
    path = tmp_path / "text"
    with writing_bundle(path) as draft:
        (draft.folder / STEP_FILE).write_bytes(b"step")

        def listing(files: dict[str, FileRecord]) -> Manifest:
            return Manifest.model_validate_json(json.dumps({**document, "files": _records(files)}))

        draft.finish(listing)
    assert open_bundle(path).manifest.takes_text
    document["preprocessing"]["max_tokens"] = 0
    (path / "bundle.json").write_text(json.dumps(document))
    with pytest.raises(BundleError, match=r"cannot be used: preprocessing\.max_tokens: Input should be greater"):
        open_bundle(path)


def _records(files: dict[str, FileRecord]) -> dict[str, Any]:
    return {name: record.model_dump(mode="json") for name, record in files.items()}
