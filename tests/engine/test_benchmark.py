"""The GPU benchmark runs without a GPU as far as it can: it builds, and the CPU answers in the engine's place."""

import importlib.util
import json
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

SCRIPT = Path(__file__).parents[2] / "benchmarks" / "gpu" / "engine.py"


@pytest.mark.usefixtures("rtx")
def test_dry_run_builds_checks_and_times(
    copied: Callable[[str], Path], tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    spec = importlib.util.spec_from_file_location("engine_benchmark", SCRIPT)
    assert spec is not None
    assert spec.loader is not None
    script = importlib.util.module_from_spec(spec)
    monkeypatch.setitem(sys.modules, spec.name, script)
    spec.loader.exec_module(script)
    monkeypatch.setattr(script, "random_bundle", lambda *_: copied("plain"))  # tracing takes longer than the rest
    file = tmp_path / "report.json"
    words = ["--dry", "--models", "dot-tiny", "--precisions", "fp32", "--batches", "2", "--json", str(file)]
    monkeypatch.setattr(sys, "argv", [str(SCRIPT), *words])
    assert script.main() == 0
    report = json.loads(file.read_text())
    assert [row["batch"] for row in report["checks"]] == [1, 2, 7]
    assert all(row["passed"] for row in report["checks"])
    (row,) = report["timings"]
    assert (row["model"], row["kind"], row["batch"]) == ("dot-tiny", "no custom operator", 2)
    assert "images/s" in capsys.readouterr().out
