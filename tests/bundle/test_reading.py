"""A damaged, foreign or dishonest bundle is refused with one sentence that names it."""

import json
import os
import zipfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from gaussport.errors import BundleError
from gaussport.export.bundle.draft import looks_like_a_bundle
from gaussport.export.bundle.store import open_bundle

Write = Callable[..., Path]


@pytest.mark.parametrize("name", ["tiny", "tiny.zip"])
def test_what_was_written_is_read_back(tmp_path: Path, write: Write, name: str) -> None:
    bundle = open_bundle(write(tmp_path / name))
    assert bundle.read("model.onnx") == b"weights"
    assert bundle.read("engines/plan") == b"plan"
    assert bundle.manifest.labels == ("cat", "dog")


@pytest.mark.parametrize("name", ["tiny", "tiny.zip"])
def test_an_unlisted_file_is_not_read(tmp_path: Path, write: Write, name: str) -> None:
    with pytest.raises(BundleError, match=r"no file bundle\.json"):
        open_bundle(write(tmp_path / name)).read("bundle.json")


def test_a_changed_byte_is_noticed(tmp_path: Path, write: Write) -> None:
    path = write(tmp_path / "tiny")
    (path / "model.onnx").write_bytes(b"WEIGHTS")
    with pytest.raises(BundleError, match=r"model\.onnx .* differs from its hash"):
        open_bundle(path)
    with pytest.raises(BundleError, match=r"model\.onnx .* differs from its hash"):
        open_bundle(path, check_hashes=False).read("model.onnx")


def test_a_missing_file_is_noticed_without_hashing(tmp_path: Path, write: Write) -> None:
    path = write(tmp_path / "tiny")
    (path / "model.onnx").unlink()
    with pytest.raises(BundleError, match=r"lacks its file model\.onnx"):
        open_bundle(path, check_hashes=False)


def test_a_truncated_file_is_noticed_without_hashing(tmp_path: Path, write: Write) -> None:
    path = write(tmp_path / "tiny")
    (path / "model.onnx").write_bytes(b"w")
    with pytest.raises(BundleError, match="has 1 bytes and should have 7"):
        open_bundle(path, check_hashes=False)


def test_a_truncated_zip_is_refused(tmp_path: Path, write: Write) -> None:
    path = write(tmp_path / "tiny.zip")
    path.write_bytes(path.read_bytes()[:-30])
    with pytest.raises(BundleError, match="neither a folder nor a whole zip"):
        open_bundle(path)


def test_a_changed_byte_in_a_zip_is_noticed(tmp_path: Path, write: Write) -> None:
    path = write(tmp_path / "tiny.zip")
    path.write_bytes(path.read_bytes().replace(b"engines/planplan", b"engines/planPLAN"))
    with pytest.raises(BundleError, match="differs from its hash"):
        open_bundle(path)


def test_a_missing_path_and_a_foreign_folder_are_told_apart(tmp_path: Path) -> None:
    with pytest.raises(BundleError, match="does not exist"):
        open_bundle(tmp_path / "nothing")
    with pytest.raises(BundleError, match=r"it has no bundle\.json"):
        open_bundle(tmp_path)


@pytest.mark.parametrize("text", [b"", b"{", b"\xff\xfe", b"[" * 100_000])
def test_a_manifest_that_is_not_json_is_refused(tmp_path: Path, write: Write, text: bytes) -> None:
    path = write(tmp_path / "tiny")
    (path / "bundle.json").write_bytes(text)
    with pytest.raises(BundleError, match="not JSON"):
        open_bundle(path)


@pytest.mark.parametrize("text", [b"[]", b"null", b"{}", b'{"schema_version": 1}'])
def test_json_that_is_not_a_manifest_is_refused(tmp_path: Path, write: Write, text: bytes) -> None:
    path = write(tmp_path / "tiny")
    (path / "bundle.json").write_bytes(text)
    with pytest.raises(BundleError, match="cannot be used"):
        open_bundle(path)


def test_parts_that_disagree_are_told_in_our_own_words(tmp_path: Path, write: Write) -> None:
    path = write(tmp_path / "tiny")
    _edit(path, lambda content: content["labels"].append("one more"))
    with pytest.raises(BundleError, match="does not have one column for each of") as caught:
        open_bundle(path)
    assert "Value error" not in str(caught.value)


def test_a_schema_from_the_future_asks_for_an_upgrade(tmp_path: Path, write: Write) -> None:
    path = write(tmp_path / "tiny")
    _edit(path, lambda content: content.update(schema_version=2, surprise=True))
    with pytest.raises(BundleError, match="schema version is 2 "):
        open_bundle(path)


@pytest.mark.parametrize("name", ["../secret", "/etc/passwd", "engines/../../secret", "a\\b"])
def test_names_that_lead_outside_are_refused(tmp_path: Path, write: Write, name: str) -> None:
    path = write(tmp_path / "tiny")
    (tmp_path / "secret").write_bytes(b"weights")
    _edit(path, lambda content: content["files"].update({name: content["files"]["model.onnx"]}))
    with pytest.raises(BundleError, match="outside"):
        open_bundle(path)


def test_links_that_lead_outside_are_refused(tmp_path: Path, write: Write) -> None:
    path = write(tmp_path / "tiny")
    (path / "model.onnx").rename(tmp_path / "outside")
    (path / "model.onnx").symlink_to(tmp_path / "outside")
    with pytest.raises(BundleError, match="outside"):
        open_bundle(path)


def test_a_zip_with_a_name_that_leads_outside_is_refused(tmp_path: Path, write: Write) -> None:
    path = write(tmp_path / "tiny.zip")
    with zipfile.ZipFile(path, "a") as archive:
        archive.writestr("../evil", b"x")
    with pytest.raises(BundleError, match="outside"):
        open_bundle(path)


def _edit(path: Path, change: Callable[[dict[str, Any]], None]) -> None:
    content = json.loads((path / "bundle.json").read_text())
    change(content)
    (path / "bundle.json").write_text(json.dumps(content))


@pytest.mark.parametrize("device", ["/dev/full", "/dev/zero", "/dev/null"])
def test_a_device_is_no_bundle_and_is_never_read(device: str) -> None:
    with pytest.raises(BundleError, match="neither a folder nor a file"):
        open_bundle(Path(device))
    assert not looks_like_a_bundle(Path(device))


def test_a_pipe_is_no_bundle_and_is_never_read(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "pipe")
    with pytest.raises(BundleError, match="neither a folder nor a file"):
        open_bundle(tmp_path / "pipe")
    assert not looks_like_a_bundle(tmp_path / "pipe")
