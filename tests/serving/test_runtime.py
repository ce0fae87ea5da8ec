"""The runtime runs where it was asked to, is what the manifest says, and uses no more cores than it may."""

import subprocess
import sys
import textwrap
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from gaussport.errors import GaussportError, ServingError, UsageError
from gaussport.export.bundle.store import open_bundle, writing_bundle
from gaussport.gpu import GPU, Driver
from gaussport.onnx_runtime import onnxruntime
from gaussport.serving import runtime
from gaussport.serving.cores import usable_cores
from gaussport.serving.metrics import Metrics
from gaussport.serving.runtime import Runtime
from gaussport.serving.served_model import ServedModel
from gaussport.serving.settings import Settings
from gaussport.serving.v2 import metadata

ONE_THREAD = Settings(threads=1)


@pytest.mark.parametrize("provider", ["cuda", "tensorrt", "tensorrt-rtx"])
def test_a_provider_that_is_not_there_is_refused(tiny: Path, provider: str) -> None:
    if "CUDAExecutionProvider" in onnxruntime.get_available_providers():
        pytest.skip("this machine has a GPU runtime")
    with pytest.raises(ServingError, match=f"the provider {provider} is not in this ONNX Runtime"):
        Runtime(open_bundle(tiny), provider, threads=1)


def test_an_unknown_provider_is_refused(tiny: Path) -> None:
    with pytest.raises(ServingError, match="choose one of auto, cpu, cuda"):
        Runtime(open_bundle(tiny), "gpu", threads=1)


def test_a_silent_fall_back_is_refused(tiny: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    # ONNX Runtime lists the provider, takes it, and runs on the CPU all the same.
    real = onnxruntime.InferenceSession
    monkeypatch.setattr(runtime, "driver", lambda: Driver("13.0", (GPU(0, "a GPU", 86, 1 << 34),)))
    monkeypatch.setattr(onnxruntime, "get_available_providers", lambda: ["CUDAExecutionProvider", "CPUExecutionProvider"])
    monkeypatch.setattr(
        onnxruntime, "InferenceSession", lambda model, options, providers: real(model, options, ["CPUExecutionProvider"])
    )
    with pytest.raises(ServingError, match="asked for the provider cuda but ONNX Runtime fell back to CPUExecutionProvider"):
        Runtime(open_bundle(tiny), "cuda", threads=1)


def test_any_batch_size_gives_the_same_rows(tiny: Path) -> None:
    running = Runtime(open_bundle(tiny), threads=1)
    pixels = np.random.default_rng(0).normal(size=(16, 3, 8, 8)).astype(np.float32)
    whole = running.run(pixels)
    for size in (1, 3, 7, 16):
        np.testing.assert_allclose(running.run(pixels[:size]), whole[:size], atol=1e-5)
    np.testing.assert_allclose(running.run(pixels[::-1]), whole[::-1], atol=1e-5)  # a view with negative strides


def test_every_power_of_two_is_warmed_up(tiny: Path) -> None:
    assert Runtime(open_bundle(tiny), threads=1).warm_up(12) == [1, 2, 4, 8, 12]


def test_a_graph_of_one_batch_size_takes_no_other(tmp_path: Path, write_bundle: Callable[..., Path]) -> None:
    bundle = open_bundle(write_bundle(tmp_path / "fixed", batch=4))
    with pytest.raises(ServingError, match="batches of 4 only"):
        ServedModel(bundle, Settings(threads=1, max_batch=8), Metrics())


def test_a_graph_of_batch_one_serves_one_by_one(tmp_path: Path, write_bundle: Callable[..., Path]) -> None:
    bundle = open_bundle(write_bundle(tmp_path / "one", batch=1))
    assert ServedModel(bundle, ONE_THREAD, Metrics()).max_batch == 1
    with pytest.raises(ServingError, match="batches of 1 only"):
        ServedModel(bundle, Settings(threads=1, max_batch=8), Metrics())


def test_a_batch_beyond_the_proof_is_refused(tiny: Path) -> None:
    with pytest.raises(UsageError, match="--max-batch 17 is more than the 16"):
        ServedModel(open_bundle(tiny), Settings(threads=1, max_batch=17), Metrics())


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (
            lambda manifest: manifest.model_copy(update={"input": manifest.input.model_copy(update={"name": "x"})}),
            "no tensor x",
        ),
        (
            lambda manifest: manifest.model_copy(
                update={"output": manifest.output.model_copy(update={"shape": ("batch", 9)})}
            ),
            r"\['batch', 10\] in the graph",
        ),
        (
            lambda manifest: manifest.model_copy(update={"input": manifest.input.model_copy(update={"dtype": "bfloat16"})}),
            "bfloat16",
        ),
    ],
)
def test_a_graph_that_is_not_what_the_manifest_says_is_refused(
    tiny: Path, change: Callable[[Any], Any], message: str
) -> None:
    bundle = open_bundle(tiny)
    with pytest.raises(ServingError, match=message):
        Runtime(type(bundle)(bundle.path, change(bundle.manifest)), threads=1)


def test_a_file_that_is_no_model_is_refused_in_one_sentence(tiny: Path, tmp_path: Path) -> None:
    manifest = open_bundle(tiny).manifest
    with writing_bundle(tmp_path / "odd") as draft:
        (draft.folder / "model.onnx").write_bytes(b"not a model")
        draft.finish(lambda files: manifest.model_copy(update={"files": files}))
    with pytest.raises(GaussportError, match="ONNX Runtime cannot load") as caught:
        Runtime(open_bundle(tmp_path / "odd"), threads=1)
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize(("quota", "cores"), [("max 100000", 64), ("150000 100000", 2), ("50000 100000", 1), ("junk", 64)])
def test_cores_follow_affinity_and_quota(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, quota: str, cores: int) -> None:
    monkeypatch.setattr("os.sched_getaffinity", lambda _: set(range(64)))
    (tmp_path / "own").write_text("0::/pod/container\n")
    (tmp_path / "root" / "pod" / "container").mkdir(parents=True)
    (tmp_path / "root" / "pod" / "cpu.max").write_text(quota + "\n")
    assert usable_cores(tmp_path / "root", tmp_path / "own") == cores


def test_cores_follow_the_quota_of_cgroup_v1(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("os.sched_getaffinity", lambda _: set(range(64)))
    (tmp_path / "cpu").mkdir()
    (tmp_path / "cpu" / "cpu.cfs_quota_us").write_text("300000")
    (tmp_path / "cpu" / "cpu.cfs_period_us").write_text("100000")
    assert usable_cores(tmp_path, tmp_path / "missing") == 3


def test_serving_starts_without_torch_onnx_triton_or_tensorrt(tiny: Path) -> None:
    script = textwrap.dedent("""
        import sys

        class Blocker:
            def find_spec(self, name, path=None, target=None):
                blocked = {"torch", "onnx", "triton", "tritonclient", "tensorrt", "tensorrt_rtx", "onnxscript"}
                if name.partition(".")[0] in blocked:
                    raise ImportError(f"{name} is blocked")

        sys.meta_path.insert(0, Blocker())
        import pathlib
        from gaussport import cli
        from gaussport.export.bundle.store import open_bundle
        from gaussport.serving import client, server
        from gaussport.serving.app import build_app
        from gaussport.serving.commands import classify, query, serve
        from gaussport.serving.settings import Settings
        build_app([pathlib.Path(sys.argv[1])], Settings(threads=1))
        loaded = {name.partition(".")[0] for name in sys.modules}
        assert not loaded & {"torch", "onnx", "triton", "tritonclient", "tensorrt"}, loaded
    """)
    done = subprocess.run([sys.executable, "-c", script, str(tiny)], capture_output=True, text=True, check=False, timeout=60)
    assert done.returncode == 0, done.stderr


def test_the_models_configuration_says_what_runs(tiny: Path) -> None:
    served = ServedModel(open_bundle(tiny), ONE_THREAD, Metrics())
    parameters = {name: value["string_value"] for name, value in metadata.config(served)["parameters"].items()}
    runs = {"provider": "cpu", "precision": "fp32", "onnxruntime": onnxruntime.__version__}
    assert {name: parameters[name] for name in runs} == runs


def test_a_zip_is_served_like_its_folder(tiny: Path, tmp_path: Path, write_bundle: Callable[..., Path]) -> None:
    pixels = np.random.default_rng(0).normal(size=(2, 3, 8, 8)).astype(np.float32)
    folder, packed = open_bundle(tiny), open_bundle(write_bundle(tmp_path / "tiny.zip"))
    assert np.array_equal(Runtime(folder, threads=1).run(pixels), Runtime(packed, threads=1).run(pixels))
