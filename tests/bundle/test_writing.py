"""A bundle is whole or absent: whatever goes wrong while writing, the old one or nothing is there, and no rubbish."""

import os
import subprocess
import sys
import textwrap
from collections.abc import Callable
from pathlib import Path

import pytest

from gaussport.errors import BundleError, UsageError
from gaussport.export.bundle import rename
from gaussport.export.bundle.manifest import FileRecord, Manifest
from gaussport.export.bundle.store import open_bundle, writing_bundle

Write = Callable[..., Path]
KINDS = pytest.mark.parametrize("name", ["tiny", "tiny.zip"])


@KINDS
def test_an_exception_leaves_nothing(tmp_path: Path, name: str) -> None:
    def write_half() -> None:
        with writing_bundle(tmp_path / name) as draft:
            (draft.folder / "model.onnx").write_bytes(b"half")
            raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        write_half()
    assert list(tmp_path.iterdir()) == []


@KINDS
def test_an_exception_leaves_the_old_bundle(tmp_path: Path, write: Write, name: str) -> None:
    path = write(tmp_path / name)
    with pytest.raises(ZeroDivisionError), writing_bundle(path, overwrite=True):
        raise ZeroDivisionError
    assert open_bundle(path).read("model.onnx") == b"weights"
    assert list(tmp_path.iterdir()) == [path]


@KINDS
def test_overwriting_replaces_the_bundle(tmp_path: Path, write: Write, name: str) -> None:
    path = write(tmp_path / name)
    write(path, model=b"better", overwrite=True)
    assert open_bundle(path).read("model.onnx") == b"better"
    assert list(tmp_path.iterdir()) == [path]


def test_overwriting_works_without_the_kernels_exchange(
    tmp_path: Path, write: Write, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(rename, "_renameat2", lambda *_: False)
    path = write(tmp_path / "tiny")
    write(path, model=b"better", overwrite=True)
    assert open_bundle(path).read("model.onnx") == b"better"
    assert list(tmp_path.iterdir()) == [path]


def test_forgetting_to_finish_leaves_nothing(tmp_path: Path) -> None:
    with pytest.raises(BundleError, match="not finished"), writing_bundle(tmp_path / "tiny"):
        pass
    assert list(tmp_path.iterdir()) == []


@KINDS
def test_an_existing_bundle_is_kept_unless_asked(tmp_path: Path, write: Write, name: str) -> None:
    write(tmp_path / name)
    with pytest.raises(UsageError, match="--overwrite"):
        write(tmp_path / name)


def test_what_is_not_a_bundle_is_never_overwritten(tmp_path: Path, write: Write) -> None:
    (tmp_path / "photos").mkdir()
    (tmp_path / "notes.txt").write_text("mine")
    for name in ("photos", "notes.txt"):
        with pytest.raises(UsageError, match="never overwritten"):
            write(tmp_path / name, overwrite=True)


def test_a_missing_parent_is_named(tmp_path: Path, write: Write) -> None:
    with pytest.raises(UsageError, match=r"the folder .*nowhere does not exist"):
        write(tmp_path / "nowhere" / "tiny")


def test_a_parent_that_is_a_file_is_named(tmp_path: Path, write: Write) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(UsageError, match="is not a folder"):
        write(tmp_path / "file" / "tiny")


def test_a_parent_that_cannot_be_written_is_named(tmp_path: Path, write: Write, monkeypatch: pytest.MonkeyPatch) -> None:
    # Tests may run as root, whom permissions do not stop: the question is answered for it.
    monkeypatch.setattr(os, "access", lambda *_: False)
    with pytest.raises(UsageError, match="not writable"):
        write(tmp_path / "tiny")


def test_a_destination_made_meanwhile_is_not_replaced(
    tmp_path: Path, write: Write, manifest_of: Callable[[dict[str, FileRecord]], Manifest]
) -> None:
    def write_slowly() -> None:
        with writing_bundle(tmp_path / "tiny") as draft:
            draft.finish(manifest_of)
            write(tmp_path / "tiny")

    with pytest.raises(BundleError, match="meanwhile"):
        write_slowly()
    assert open_bundle(tmp_path / "tiny").read("model.onnx") == b"weights"
    assert list(tmp_path.iterdir()) == [tmp_path / "tiny"]


def test_equal_bundles_are_equal_zips(tmp_path: Path, write: Write) -> None:
    assert write(tmp_path / "a.zip").read_bytes() == write(tmp_path / "b.zip").read_bytes()


def test_a_link_in_the_draft_is_refused(tmp_path: Path, manifest_of: Callable[[dict[str, FileRecord]], Manifest]) -> None:
    def write_link() -> None:
        with writing_bundle(tmp_path / "tiny") as draft:
            (draft.folder / "model.onnx").symlink_to("/etc/passwd")
            draft.finish(manifest_of)

    with pytest.raises(BundleError, match="not a plain file"):
        write_link()


def test_a_killed_writer_leaves_no_bundle_and_the_next_one_sweeps(tmp_path: Path, write: Write) -> None:
    script = textwrap.dedent("""
        import os, pathlib, signal, sys
        from gaussport.export.bundle.store import writing_bundle
        with writing_bundle(pathlib.Path(sys.argv[1])) as draft:
            (draft.folder / "model.onnx").write_bytes(b"half")
            os.kill(os.getpid(), signal.SIGKILL)
    """)
    subprocess.run([sys.executable, "-c", script, str(tmp_path / "tiny")], check=False)
    assert not (tmp_path / "tiny").exists()
    write(tmp_path / "tiny")
    assert list(tmp_path.iterdir()) == [tmp_path / "tiny"]


def test_a_living_writers_draft_is_not_swept(tmp_path: Path, write: Write) -> None:
    def write_twice() -> None:
        with writing_bundle(tmp_path / "tiny") as draft:
            write(tmp_path / "tiny")
            assert draft.folder.is_dir()
            raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        write_twice()
