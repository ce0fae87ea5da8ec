"""The GPU benchmark runs without a GPU as far as it can: it builds, and the CPU answers in the engine's place."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

SCRIPT = Path(__file__).parents[2] / "benchmarks" / "gpu" / "engine.py"


@pytest.mark.usefixtures("rtx")
def test_dry_run_builds_checks_and_times(tmp_path: Path) -> None:
    file = tmp_path / "report.json"
    words = ["--dry", "--models", "dot-tiny", "--precisions", "fp32", "--batches", "2", "--json", str(file)]
    environment = {**os.environ, "OMP_NUM_THREADS": "1"}
    done = subprocess.run([sys.executable, str(SCRIPT), *words], capture_output=True, text=True, env=environment)
    assert done.returncode == 0, done.stderr
    report = json.loads(file.read_text())
    assert [row["batch"] for row in report["checks"]] == [1, 2, 7]
    assert all(row["passed"] for row in report["checks"])
    assert [(row["model"], row["kind"], row["batch"]) for row in report["timings"]] == [
        ("dot-tiny", "no custom operator", 2)
    ]
