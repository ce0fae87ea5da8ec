"""Folders of links, as Kubernetes and download caches lay them out, are bundles; links to anywhere else are not."""

import shutil
from collections.abc import Callable
from pathlib import Path

import pytest

from gaussport.errors import BundleError
from gaussport.export.bundle.store import open_bundle

Write = Callable[..., Path]


def as_kubernetes_mounts_it(bundle: Path, home: Path) -> Path:
    """Each name links to `..data/name`, and `..data` to the folder of the present version."""
    version = home / "..2026_11_30"
    shutil.copytree(bundle, version)
    (home / "..data").symlink_to(version.name)
    for path in version.iterdir():
        (home / path.name).symlink_to(f"..data/{path.name}")
    return home


def as_a_hub_caches_it(bundle: Path, home: Path) -> Path:
    """Each file links to a blob that is named by its hash, beside the snapshots."""
    blobs, snapshot = home / "models--a--b" / "blobs", home / "models--a--b" / "snapshots" / "0123abcd"
    blobs.mkdir(parents=True)
    for number, path in enumerate(sorted(p for p in bundle.rglob("*") if p.is_file())):
        shutil.copyfile(path, blobs / str(number))
        link = snapshot / path.relative_to(bundle)
        link.parent.mkdir(parents=True, exist_ok=True)
        depth = len(link.relative_to(home / "models--a--b").parts) - 1
        link.symlink_to(Path(*[".."] * depth, "blobs", str(number)))
    return snapshot


LAYOUTS = pytest.mark.parametrize("layout", [as_kubernetes_mounts_it, as_a_hub_caches_it])


@LAYOUTS
def test_a_folder_of_links_is_a_bundle(tmp_path: Path, write: Write, layout: Callable[[Path, Path], Path]) -> None:
    (tmp_path / "home").mkdir()
    path = layout(write(tmp_path / "tiny"), tmp_path / "home")
    bundle = open_bundle(path)
    assert bundle.read("model.onnx") == b"weights"
    assert bytes(bundle.content("model.onnx")) == b"weights"
    assert bundle.read("engines/plan") == b"plan"


def test_a_link_to_the_folder_is_the_bundle(tmp_path: Path, write: Write) -> None:
    write(tmp_path / "tiny")
    (tmp_path / "current").symlink_to("tiny")
    assert open_bundle(tmp_path / "current").read("model.onnx") == b"weights"


def test_a_snapshot_reads_no_file_beside_its_blobs(tmp_path: Path, write: Write) -> None:
    (tmp_path / "home").mkdir()
    path = as_a_hub_caches_it(write(tmp_path / "tiny"), tmp_path / "home")
    shutil.copyfile(path / "model.onnx", path.parents[1] / "model.onnx")
    (path / "model.onnx").unlink()
    (path / "model.onnx").symlink_to("../../model.onnx")
    with pytest.raises(BundleError, match="link that leads outside"):
        open_bundle(path)


def test_a_changed_blob_is_noticed(tmp_path: Path, write: Write) -> None:
    (tmp_path / "home").mkdir()
    path = as_a_hub_caches_it(write(tmp_path / "tiny"), tmp_path / "home")
    (path / "model.onnx").resolve().write_bytes(b"WEIGHTS")
    for read in (lambda: open_bundle(path), lambda: open_bundle(path, check_hashes=False).content("model.onnx")):
        with pytest.raises(BundleError, match="differs from its hash"):
            read()
