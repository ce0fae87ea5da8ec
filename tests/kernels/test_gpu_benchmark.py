"""The GPU benchmark runs without a GPU as far as it can: its checks, interpreted, and its refusal."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest
import torch

SCRIPT = Path(__file__).parents[2] / "benchmarks" / "gpu" / "operators.py"


def run_script(*arguments: str) -> "subprocess.CompletedProcess[str]":
    environment = {**os.environ, "OMP_NUM_THREADS": "1"}
    environment.pop("TRITON_INTERPRET", None)
    return subprocess.run([sys.executable, str(SCRIPT), *arguments], capture_output=True, text=True, env=environment)


def test_dry_run_checks_every_kernel(tmp_path: Path) -> None:
    file = tmp_path / "report.json"
    answer = run_script("--dry", "--dtypes", "float32", "--json", str(file))
    assert answer.returncode == 0, answer.stdout + answer.stderr
    report = json.loads(file.read_text())
    assert {row["operator"] for row in report["checks"]} == {"filter", "fixed filter", "routing", "causal routing"}
    assert all(row["passed"] for row in report["checks"])
    assert report["timings"] == []


@pytest.mark.skipif(torch.cuda.is_available(), reason="here is a GPU")
def test_without_a_gpu_it_says_what_can_be_done() -> None:
    answer = run_script()
    assert answer.returncode == 1
    assert "--dry checks the kernels" in answer.stderr
