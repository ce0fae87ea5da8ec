"""`gaussport doctor` says what is so, on this machine and on ones that stand-ins describe, and never raises."""

import json
import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from gaussport.cli import main
from gaussport.doctor import bundle as bundle_module
from gaussport.doctor import machine as machine_module
from gaussport.doctor import toolchain
from gaussport.doctor.finding import Finding
from gaussport.gpu import GPU, Driver, driver

A10 = Driver("13.1", (GPU(0, "NVIDIA A10", 86, 24 << 30),))
NOTHING = Driver(None, (), "there is no NVIDIA driver: libcuda.so.1 cannot be loaded")


def by_subject(findings: Any) -> dict[str, Finding]:
    return {finding.subject: finding for finding in findings}


def test_every_part_is_answered_in_json(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["doctor", "--json"]) == 0
    findings = json.loads(capsys.readouterr().out)["findings"]
    subjects = {finding["subject"] for finding in findings}
    assert {"system", "cores", "memory", "ONNX Runtime", "provider cpu", "provider tensorrt", "gaussport export"} <= subjects
    assert {"GPU kernels", "plugin library", "build-engine tensorrt", "build-engine tensorrt-rtx"} <= subjects
    assert all(finding["text"] and "\n" not in finding["text"] for finding in findings)


def test_a_bundle_that_the_cpu_can_serve_is_well(engine_bundle: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["doctor", str(engine_bundle)]) == 0
    assert "model.onnx" in capsys.readouterr().out


def test_a_machine_without_a_gpu_is_told_why(monkeypatch: pytest.MonkeyPatch) -> None:
    found = by_subject(machine_module.machine(NOTHING))
    assert found["GPU"].state == "no"
    assert "no NVIDIA driver" in found["GPU"].text
    monkeypatch.setattr(toolchain, "_version", lambda name: None)
    assert by_subject(toolchain.exporting())["gaussport export"].text.endswith("missing: pip install 'gaussport[export]'")
    assert by_subject(toolchain.kernels())["GPU kernels"].state == "no"


def test_a_machine_with_a_gpu_is_described() -> None:
    found = by_subject(machine_module.machine(A10))
    assert found["GPU 0"].text == "NVIDIA A10, sm_86, 24 GiB; the driver is for CUDA 13.1"


def test_a_missing_compiler_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("shutil.which", lambda name: None)
    answer = by_subject(toolchain.kernels())["plugin library"]
    assert (answer.state, answer.text) == ("no", "cmake, make, C++ compiler missing: install cmake, make and g++")


def test_tensorrt_needs_the_gpu_that_it_builds_for(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("gaussport.export.engine.backend.installed_version", lambda builder: "10.16.1")
    assert by_subject(toolchain.builders(A10))["build-engine tensorrt"].text == "TensorRT 10.16.1 builds for sm_86"
    assert by_subject(toolchain.builders(NOTHING))["build-engine tensorrt"].state == "no"


def test_an_engine_of_another_gpu_is_told_apart(
    engine_record: Callable[..., Any], engine_bundle: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    engine_record(engine_bundle, architecture=90)
    monkeypatch.setattr(bundle_module, "refusal", lambda provider, found: None)
    monkeypatch.setattr("gaussport.serving.tensorrt_libraries.load_tensorrt", lambda builder: None)
    monkeypatch.setattr("gaussport.serving.tensorrt_libraries.version_of", lambda library: "1.7.1")
    answers = [finding for finding in bundle_module.bundle(engine_bundle, A10) if "sm_90" in finding.subject]
    assert [answer.state for answer in answers] == ["no"]
    assert answers[0].text.startswith("built for sm_90 with TensorRT-RTX 1.7.1.116, this is sm_86 with 1.7.1: rebuild")


def test_no_bundle_is_an_error(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["doctor", str(tmp_path / "nothing")]) == 1
    assert "does not exist" in capsys.readouterr().err


def test_it_runs_where_nothing_but_the_core_is_installed(tmp_path: Path) -> None:
    script = """
import importlib.util, sys
blocked = {"onnxruntime", "torch", "onnx", "triton", "tensorrt", "tensorrt_rtx", "fastapi", "onnx_graphsurgeon"}
class Blocker:
    def find_spec(self, name, path=None, target=None):
        if name.partition(".")[0] in blocked:
            raise ImportError(f"{name} is blocked")
sys.meta_path.insert(0, Blocker())
real = importlib.util.find_spec
importlib.util.find_spec = lambda name, package=None: None if name in blocked else real(name, package)
from gaussport.cli import main
raise SystemExit(main(["doctor"]))
"""
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, timeout=60, env=os.environ)
    assert done.returncode == 0, done.stderr
    assert "pip install 'gaussport[serve]'" in " ".join(done.stdout.split())


def test_the_real_driver_never_raises() -> None:
    found = driver()
    assert bool(found.gpus) != bool(found.fault)
