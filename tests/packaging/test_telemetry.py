"""Nothing that we start tells anyone which models are run."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

RUN = """
import {module}
import onnxruntime
from onnx import helper
graph = helper.make_graph([helper.make_node("Relu", ["x"], ["y"])], "g",
    [helper.make_tensor_value_info("x", 1, [1])], [helper.make_tensor_value_info("y", 1, [1])])
model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 20)], ir_version=10)
onnxruntime.InferenceSession(model.SerializeToString(), providers=["CPUExecutionProvider"])
"""


def traces(module: str, home: Path) -> list[Path]:
    """What ONNX Runtime leaves in a home of its own: it keeps a device id and a store of events to be sent."""
    environment = {key: value for key, value in os.environ.items() if key not in ("CI", "ORT_DISABLE_TELEMETRY")}
    environment |= {"HOME": str(home), "XDG_CACHE_HOME": str(home / ".cache")}
    subprocess.run([sys.executable, "-c", RUN.format(module=module)], check=True, env=environment)
    return [path for path in home.rglob("*") if "onnxruntime" in path.name]


@pytest.mark.parametrize("module", ["gaussport.serving.runtime", "gaussport.export.session"])
def test_onnx_runtime_sends_nothing(module: str, tmp_path: Path) -> None:
    assert traces(module, tmp_path) == []


def test_onnx_runtime_alone_would(tmp_path: Path) -> None:
    """The test above can fail: without us the traces are there."""
    assert traces("onnx", tmp_path)


USAGE = "{first}; from ray._common.usage.usage_lib import usage_stats_enabled; print(usage_stats_enabled())"


def ray_would_tell(first: str, home: Path) -> bool:
    """Whether a cluster started by this process sends usage statistics."""
    pytest.importorskip("ray", reason="install gaussport[ray]")
    environment = {key: value for key, value in os.environ.items() if not key.startswith("RAY_")} | {"HOME": str(home)}
    command = [sys.executable, "-c", USAGE.format(first=first)]
    return subprocess.run(command, check=True, env=environment, capture_output=True, text=True).stdout.strip() == "True"


def test_ray_sends_nothing(tmp_path: Path) -> None:
    assert not ray_would_tell("import gaussport.serving.cluster.server", tmp_path)
    assert ray_would_tell("import ray", tmp_path), "Ray alone would"
