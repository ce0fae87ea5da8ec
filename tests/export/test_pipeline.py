"""From a checkpoint to a bundle: all of it or nothing, and no wish is refused late."""

import hashlib
import os
import random
import resource
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from datetime import UTC, datetime
from pathlib import Path

import numpy as np
import pytest

from gaussport.errors import BundleError, CheckpointError, ConfigurationError, ProofError, UsageError
from gaussport.export import work
from gaussport.export.bundle.store import Bundle, open_bundle
from gaussport.export.pipeline import export_checkpoint
from gaussport.export.session import Session
from gaussport.models.checkpoint import build_classifier, read_checkpoint

EXPORT = [sys.executable, "-m", "gaussport", "export"]
ONE_THREAD = {**os.environ, "OMP_NUM_THREADS": "1"}


def test_the_bundle_is_whole_and_answers_as_the_checkpoint(bundle: Bundle, checkpoint_path: Path) -> None:
    import torch

    opened = open_bundle(bundle.path)
    assert sorted(opened.manifest.files) == ["explain.onnx", "model.onnx", "report.json", "report.md"]
    session = Session(opened.read("model.onnx"))
    pixels = np.random.default_rng(0).standard_normal((3, *opened.manifest.preprocessing.tensor_shape), dtype=np.float32)
    with torch.no_grad():
        expected = build_classifier(read_checkpoint(checkpoint_path))(torch.from_numpy(pixels)).numpy()
    np.testing.assert_allclose(session.run(pixels), expected, rtol=0, atol=2e-5)


def test_the_manifest_tells_where_it_came_from(bundle: Bundle, checkpoint_path: Path) -> None:
    manifest = bundle.manifest
    checkpoint = read_checkpoint(checkpoint_path)
    assert manifest.name == "tiny.v1"
    assert manifest.labels == checkpoint.labels
    assert manifest.preprocessing == checkpoint.preprocessing
    assert manifest.config == checkpoint.config.to_json()
    assert manifest.metrics == {"held_out_accuracy": 0.75}  # the NaN beside it tells nothing
    assert manifest.operators == {"gaussport": 1}
    assert manifest.provenance.checkpoint == checkpoint_path.name
    assert manifest.provenance.checkpoint_sha256 == hashlib.sha256(checkpoint_path.read_bytes()).hexdigest()
    assert {"gaussport", "torch", "onnx", "onnxruntime", "python"} <= set(manifest.provenance.tools)
    assert abs((datetime.now(UTC) - manifest.provenance.created).total_seconds()) < 600
    assert str(checkpoint_path.parent) not in manifest.model_dump_json()


@pytest.mark.usefixtures("traced_once")
def test_another_process_writes_the_same_bytes(
    checkpoint_path: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Every file, the report and `bundle.json` too: this process, whose trace was made for other tests, and a new one that
    hashes otherwise."""
    monkeypatch.setenv("SOURCE_DATE_EPOCH", "1700000000")
    here = export_checkpoint(checkpoint_path, tmp_path / "here", max_batch=3, external_data=True)
    environment = {**ONE_THREAD, "SOURCE_DATE_EPOCH": "1700000000", "PYTHONHASHSEED": "1"}
    command = [*EXPORT, str(checkpoint_path), "-o", "again", "--max-batch", "3", "--external-data"]
    subprocess.run(command, cwd=tmp_path, env=environment, check=True, capture_output=True)
    again = open_bundle(tmp_path / "again")
    assert again.manifest.provenance.created == datetime.fromtimestamp(1_700_000_000, UTC)
    names = sorted(path.name for path in here.path.iterdir())
    assert names == sorted(path.name for path in again.path.iterdir())
    for name in names:
        assert (again.path / name).read_bytes() == (here.path / name).read_bytes(), name


@pytest.mark.usefixtures("traced_once")
def test_a_zip_holds_the_same_bundle_and_without_a_terminal_nothing_is_shown(
    bundle: Bundle, checkpoint_path: Path, tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    zipped = export_checkpoint(checkpoint_path, tmp_path / "tiny.zip", max_batch=2, name="zipped")
    assert zipped.read("model.onnx") == bundle.read("model.onnx")
    assert (zipped.manifest.name, zipped.manifest.max_batch) == ("zipped", 2)
    assert capfd.readouterr() == ("", "")


@pytest.mark.usefixtures("traced_once")
def test_names_that_are_odd_but_possible(checkpoint_path: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    source = tmp_path / "-мо дель é #1%20.safetensors"
    source.write_bytes(checkpoint_path.read_bytes())
    bundle = export_checkpoint(Path(source.name), Path("мо дель é 模型 #1%20"), max_batch=1)
    assert bundle.manifest.name == "1-20"
    assert bundle.manifest.provenance.checkpoint == source.name
    assert open_bundle(tmp_path / "мо дель é 模型 #1%20").manifest == bundle.manifest


@pytest.mark.usefixtures("traced_once")
def test_a_destination_that_is_no_text(checkpoint_path: Path, tmp_path: Path) -> None:
    destination = Path(os.fsdecode(os.fsencode(tmp_path) + b"/out\xff"))
    export_checkpoint(checkpoint_path, destination, max_batch=1)
    assert open_bundle(destination).manifest.name == "tiny.v1"


@pytest.fixture
def never_works(monkeypatch: pytest.MonkeyPatch) -> None:
    """Work is forbidden: what is refused must be refused before it."""

    def refuse(*_: object) -> None:
        raise AssertionError("the checkpoint was read before the wish was refused")

    monkeypatch.setattr(work, "read_any_checkpoint", refuse)


@pytest.mark.usefixtures("never_works")
class TestRefusedBeforeWork:
    def test_an_existing_bundle(self, checkpoint_path: Path, bundle: Bundle) -> None:
        with pytest.raises(UsageError, match="exists: choose another path or pass --overwrite"):
            export_checkpoint(checkpoint_path, bundle.path)

    @pytest.mark.parametrize("overwrite", [False, True])
    def test_a_file_that_is_not_ours(self, checkpoint_path: Path, tmp_path: Path, overwrite: bool) -> None:
        (tmp_path / "notes.txt").write_text("mine")
        with pytest.raises(UsageError, match=r"notes\.txt"):
            export_checkpoint(checkpoint_path, tmp_path / "notes.txt", overwrite=overwrite)
        assert (tmp_path / "notes.txt").read_text() == "mine"

    @pytest.mark.parametrize("overwrite", [False, True])
    def test_the_checkpoint_itself(self, checkpoint_path: Path, tmp_path: Path, overwrite: bool) -> None:
        before = checkpoint_path.read_bytes()
        (tmp_path / "link").symlink_to(checkpoint_path)
        for destination in (checkpoint_path, tmp_path / "link"):
            with pytest.raises(UsageError, match="is the file that would be read"):
                export_checkpoint(checkpoint_path, destination, overwrite=overwrite)
        assert checkpoint_path.read_bytes() == before

    def test_a_missing_parent(self, checkpoint_path: Path, tmp_path: Path) -> None:
        with pytest.raises(UsageError, match=r"the folder .*nowhere does not exist"):
            export_checkpoint(checkpoint_path, tmp_path / "nowhere" / "tiny")

    def test_a_name_too_long_for_the_disk(self, checkpoint_path: Path, tmp_path: Path) -> None:
        with pytest.raises((UsageError, BundleError), match="cannot be written: File name too long"):
            export_checkpoint(checkpoint_path, tmp_path / ("x" * 300))
        assert list(tmp_path.iterdir()) == []

    @pytest.mark.parametrize("overwrite", [False, True])
    def test_a_device(self, checkpoint_path: Path, overwrite: bool) -> None:
        with pytest.raises(UsageError, match="/dev/full"):
            export_checkpoint(checkpoint_path, Path("/dev/full"), overwrite=overwrite)

    @pytest.mark.skipif(os.geteuid() == 0, reason="root may write everywhere")
    def test_a_folder_without_write_right(self, checkpoint_path: Path, tmp_path: Path) -> None:
        tmp_path.chmod(0o500)
        with pytest.raises(UsageError, match="not writable"):
            export_checkpoint(checkpoint_path, tmp_path / "tiny")

    @pytest.mark.parametrize("opset", [9, 99])
    def test_an_opset_out_of_range(self, checkpoint_path: Path, tmp_path: Path, opset: int) -> None:
        with pytest.raises(UsageError, match="choose one from 18 to 25"):
            export_checkpoint(checkpoint_path, tmp_path / "tiny", opset=opset)

    @pytest.mark.parametrize("max_batch", [-1, 0, 1025])
    def test_a_batch_out_of_range(self, checkpoint_path: Path, tmp_path: Path, max_batch: int) -> None:
        with pytest.raises(UsageError, match="from 1 to 1024"):
            export_checkpoint(checkpoint_path, tmp_path / "tiny", max_batch=max_batch)

    @pytest.mark.parametrize("name", ["", "a/b", "-x", "é", "x" * 129, "a\nb", "a\n"])
    def test_a_name_that_no_url_can_hold(self, checkpoint_path: Path, tmp_path: Path, name: str) -> None:
        with pytest.raises(UsageError, match="cannot be used in URLs"):
            export_checkpoint(checkpoint_path, tmp_path / "tiny", name=name)

    def test_a_file_name_without_a_model_name(self, tmp_path: Path) -> None:
        with pytest.raises(UsageError, match="give one with --name"):
            export_checkpoint(tmp_path / "模型.safetensors", tmp_path / "tiny")

    @pytest.mark.parametrize(
        ("content", "words"),
        [(None, "No such file"), (b"", "holds no labels"), (b"\xff\xfe\x00", "not UTF-8"), (b'["a", 1]', "list of names")],
    )
    def test_a_labels_file_that_is_none(
        self, checkpoint_path: Path, tmp_path: Path, content: bytes | None, words: str
    ) -> None:
        if content is not None:
            (tmp_path / "labels.txt").write_bytes(content)
        with pytest.raises(UsageError, match=words):
            export_checkpoint(checkpoint_path, tmp_path / "tiny", labels=tmp_path / "labels.txt")

    def test_a_time_that_is_none(self, checkpoint_path: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setenv("SOURCE_DATE_EPOCH", "yesterday")
        with pytest.raises(UsageError, match="SOURCE_DATE_EPOCH"):
            export_checkpoint(checkpoint_path, tmp_path / "tiny")


@pytest.mark.parametrize("text", ["\n".join("abcdefghij"), "a\r\nb\r\nc\r\nd\r\ne\r\nf\r\ng\r\nh\r\ni\r\nj\r\n\r\n",
                                  '\ufeff["a", "b", "c", "d", "e", "f", "g", "h", "i", "j"]'])  # fmt: skip
def test_labels_come_from_a_file(checkpoint_path: Path, tmp_path: Path, text: str, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "labels").write_bytes(text.encode())
    seen: list[tuple[str, ...]] = []

    def stop(path: Path, config: Path | None, labels: list[str], wishes: object) -> None:
        seen.append(read_checkpoint(path, config, labels).labels)
        raise ZeroDivisionError

    monkeypatch.setattr(work, "read_any_checkpoint", stop)
    with pytest.raises(ZeroDivisionError):
        export_checkpoint(checkpoint_path, tmp_path / "tiny", labels=tmp_path / "labels")
    assert seen == [tuple("abcdefghij")]


def test_labels_must_be_as_many_as_the_head_has_rows(checkpoint_path: Path, tmp_path: Path) -> None:
    (tmp_path / "labels").write_text("cat\ndog\n")
    with pytest.raises(ConfigurationError, match=r"2 labels .* 10 classes"):
        export_checkpoint(checkpoint_path, tmp_path / "tiny", labels=tmp_path / "labels")
    assert [path.name for path in tmp_path.iterdir()] == ["labels"]


def test_a_checkpoint_that_is_none_leaves_nothing(tmp_path: Path) -> None:
    (tmp_path / "page.pt").write_text("<!DOCTYPE html>")
    for name, words in (("page.pt", "HTML page"), ("nothing.pt", "there is no checkpoint")):
        with pytest.raises(CheckpointError, match=words):
            export_checkpoint(tmp_path / name, tmp_path / "tiny")
    assert [path.name for path in tmp_path.iterdir()] == ["page.pt"]


@pytest.mark.usefixtures("traced_once")
@pytest.mark.parametrize("existed", [False, True])
def test_a_failing_proof_leaves_what_was_there(
    checkpoint_path: Path, bundle: Bundle, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, existed: bool
) -> None:
    destination = tmp_path / "tiny"
    if existed:
        destination.mkdir()
        for path in bundle.path.iterdir():
            (destination / path.name).write_bytes(path.read_bytes())
    honest = work.export_onnx

    def wrong(*arguments: object) -> object:
        model = honest(*arguments)  # type: ignore[arg-type]
        bias = next(tensor for tensor in model.graph.initializer if tensor.name == "head.bias")
        bias.raw_data = np.flip(np.frombuffer(bias.raw_data, np.float32)).tobytes()
        return model

    monkeypatch.setattr(work, "export_onnx", wrong)
    with pytest.raises(ProofError, match=r"at batch 1 .* more than the tolerance"):
        export_checkpoint(checkpoint_path, destination, overwrite=True)
    assert list(tmp_path.iterdir()) == ([destination] if existed else [])
    if existed:
        assert open_bundle(destination).manifest == bundle.manifest


@pytest.mark.usefixtures("traced_once")
def test_a_full_disk_leaves_nothing(checkpoint_path: Path, tmp_path: Path) -> None:
    before = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (20_000, before[1]))  # bytes a file may have; the model has more
    try:
        with pytest.raises(BundleError, match="tiny cannot be written: File too large"):
            export_checkpoint(checkpoint_path, tmp_path / "tiny", max_batch=1)
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, before)
    assert list(tmp_path.iterdir()) == []


def test_killing_it_leaves_the_old_bundle(checkpoint_path: Path, bundle: Bundle, tmp_path: Path) -> None:
    destination = tmp_path / "tiny"
    destination.mkdir()
    for path in bundle.path.iterdir():
        (destination / path.name).write_bytes(path.read_bytes())
    command = [*EXPORT, str(checkpoint_path), "-o", str(destination), "--overwrite", "--max-batch", "2", "--name", "new"]
    moments = random.Random(0)
    for _ in range(3):
        process = subprocess.Popen(command, env=ONE_THREAD, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        time.sleep(moments.uniform(0.5, 3.5))
        process.kill()
        process.wait()
        assert open_bundle(destination).manifest.name in (bundle.manifest.name, "new")


def test_killing_it_when_only_the_rename_is_left_leaves_none(bundle: Bundle, checkpoint_path: Path, tmp_path: Path) -> None:
    script = (
        "import os, sys, pathlib, onnx\n"
        "from gaussport.export import work\n"
        "from gaussport.export.bundle import draft\n"
        "work.export_onnx = lambda *_: onnx.load(pathlib.Path(sys.argv[3]) / 'model.onnx')  # tracing is slow\n"
        "from gaussport.export.pipeline import export_checkpoint\n"
        "draft._publish = lambda *_: os.kill(os.getpid(), 9)\n"
        "export_checkpoint(pathlib.Path(sys.argv[1]), pathlib.Path(sys.argv[2]), max_batch=1)\n"
    )
    command = [sys.executable, "-c", script, str(checkpoint_path), str(tmp_path / "tiny"), str(bundle.path)]
    assert subprocess.run(command, env=ONE_THREAD, check=False, capture_output=True).returncode == -signal.SIGKILL
    assert not (tmp_path / "tiny").exists()


@pytest.mark.usefixtures("traced_once")
def test_relabelled_checkpoints_keep_their_labels(relabelled: Callable[[tuple[str, ...]], Path], tmp_path: Path) -> None:
    labels = ("a", "A", "é", "模型", "x, y", '"', "\\", "[red]", "z" * 1000, "</script>")
    bundle = export_checkpoint(relabelled(labels), tmp_path / "tiny", max_batch=1)
    assert open_bundle(bundle.path).manifest.labels == labels
