"""What cannot be is refused with one sentence before the work, and needs no TensorRT to be refused."""

from collections.abc import Callable
from pathlib import Path

import pytest

from gaussport.cli import main
from gaussport.errors import EngineError, ExportError, UsageError
from gaussport.export.engine import backend, build
from gaussport.export.engine.architectures import parse_architecture
from gaussport.export.engine.build import build_engines
from gaussport.export.engine.wish import Batches, Wish
from gaussport.gpu import GPU, Driver

A10 = Driver("13.1", (GPU(0, "NVIDIA A10", 86, 24 << 30),))


@pytest.mark.parametrize("text", ["sm_86", "SM86", "86", "8.6", " sm86 "])
def test_an_architecture_may_be_written_as_people_do(text: str) -> None:
    assert parse_architecture(text) == 86


@pytest.mark.parametrize("text", ["", "ampere", "sm_", "8.66", "sm_1200", "-86"])
def test_what_is_no_architecture_is_refused(text: str) -> None:
    with pytest.raises(UsageError, match="is no GPU architecture: write it as sm_86"):
        parse_architecture(text)


@pytest.mark.parametrize(
    ("wish", "message"),
    [
        (Wish("tensorrt-rtx", (86,), least_batch=4, best_batch=2), r"--min-batch 4, --opt-batch 2 .* must not descend"),
        (Wish("tensorrt-rtx", (86,), best_batch=8, most_batch=4), "must not descend"),
        (Wish("tensorrt-rtx", (86,), least_batch=0), "--min-batch is 0: the smallest batch is at least 1"),
        (Wish("tensorrt-rtx", (86,), most_batch=0), "must not descend"),
        (Wish("tensorrt-rtx", (86,), most_batch=9), r"--max-batch 9 is more than the 8 that the bundle was proved with"),
        (Wish("tensorrt-rtx", (90,)), "TensorRT-RTX does not build for sm_90: choose from sm_80, sm_86, sm_89, sm_120, or"),
        (Wish("tensorrt-rtx", (75,)), "our kernels are not compiled for sm_75: choose from sm_80, sm_86, sm_89, sm_120, or"),
        (Wish("tensorrt-rtx", (86,), precision="int8"), "export the checkpoint with --precision int8"),
        (Wish("tensorrt-rtx", (86,), precision="fp8"), "there is no precision 'fp8'"),
        (Wish("openvino", (86,)), "there is no builder 'openvino'"),
    ],
)
def test_an_impossible_wish_is_refused_before_any_work(
    bundles: Callable[[str], Path], monkeypatch: pytest.MonkeyPatch, wish: Wish, message: str
) -> None:
    monkeypatch.setattr(build, "check_installed", lambda builder: pytest.fail("it looked for TensorRT first"))
    with pytest.raises(UsageError, match=message):
        build_engines(bundles("ssog"), wish)


def test_a_folder_as_timing_cache_is_refused(bundles: Callable[[str], Path], tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="is a folder: name a file"):
        build_engines(bundles("ssog"), Wish("tensorrt-rtx", (86,), timing_cache=tmp_path))


@pytest.mark.parametrize("builder", ["tensorrt", "tensorrt-rtx"])
def test_a_builder_that_is_not_installed_is_one_line(
    bundles: Callable[[str], Path], monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], builder: str
) -> None:
    monkeypatch.setattr(backend, "find_spec", lambda name: None)
    assert main(["build-engine", str(bundles("plain")), "--builder", builder, "--arch", "86"]) == 1
    error = capsys.readouterr().err
    assert "is not installed: pip install 'gaussport[" in error
    assert error.count("\n") == 1


def test_tensorrt_without_a_gpu_is_one_line(bundles: Callable[[str], Path], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(build, "check_installed", lambda builder: None)
    monkeypatch.setattr(build, "driver", lambda: Driver(None, (), "there is no NVIDIA driver"))
    with pytest.raises(EngineError, match="the GPU that it builds for, and there is no NVIDIA driver: build where"):
        build_engines(bundles("plain"), Wish("tensorrt", (86,)))
    with pytest.raises(UsageError, match="there is no GPU to build for"):
        build_engines(bundles("plain"), Wish("tensorrt-rtx", ()))


def test_tensorrt_builds_for_its_own_gpu_only(bundles: Callable[[str], Path], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(build, "check_installed", lambda builder: None)
    monkeypatch.setattr(build, "driver", lambda: A10)
    with pytest.raises(EngineError, match="builds for this machine's sm_86 only and was asked for sm_90"):
        build_engines(bundles("plain"), Wish("tensorrt", (90,)))


def test_a_missing_compiler_is_told_before_tensorrt_starts(
    bundles: Callable[[str], Path], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(build, "check_installed", lambda builder: None)
    monkeypatch.setattr(build, "run_worker", lambda *_: pytest.fail("the worker was started"))
    monkeypatch.setattr("gaussport.plugins.tensorrt.library.shutil.which", lambda name: None)
    with pytest.raises(ExportError, match="install cmake, make and g"):
        build_engines(bundles("ssog"), Wish("tensorrt-rtx", (86,)))


@pytest.mark.parametrize(
    ("absent", "message"),
    [
        ("triton", "triton is not installed, and our kernels"),
        ("onnx_graphsurgeon", "onnx_graphsurgeon missing"),
    ],
)
def test_a_missing_package_is_one_line(
    bundles: Callable[[str], Path], monkeypatch: pytest.MonkeyPatch, absent: str, message: str
) -> None:
    monkeypatch.setattr(build, "check_installed", lambda builder: None)
    monkeypatch.setattr(build, "find_spec", lambda name: None if name == absent else name)
    with pytest.raises(EngineError, match=message):
        build_engines(bundles("ssog"), Wish("tensorrt-rtx", (86,)))


@pytest.mark.parametrize(
    ("batches", "sizes"),
    [(Batches(1, 4, 8), list(range(1, 9))), (Batches(3, 100, 200), [3, 4, 8, 16, 32, 64, 100, 128, 200])],
)
def test_shapes_are_inferred_over_the_whole_profile(batches: Batches, sizes: list[int]) -> None:
    assert batches.probes() == sizes
