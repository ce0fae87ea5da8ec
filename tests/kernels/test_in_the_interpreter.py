"""Runs the tests in `interpreted/` in a process of their own, where Triton interprets kernels on the CPU."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

INTERPRETED = Path(__file__).with_name("interpreted")


@pytest.mark.timeout(900)  # a whole file of tests: minutes on a busy machine
@pytest.mark.skipif(os.environ.get("TRITON_INTERPRET") == "1", reason="this process already interprets kernels")
@pytest.mark.parametrize("file", sorted(INTERPRETED.glob("test_*.py")), ids=lambda file: file.stem)
def test_interpreted_kernels_equal_the_definition(file: Path) -> None:
    command = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", str(file)]
    environment = {name: value for name, value in os.environ.items() if not name.startswith(("PYTEST_", "COV_"))}
    answer = subprocess.run(
        command, capture_output=True, text=True, env={**environment, "TRITON_INTERPRET": "1", "OMP_NUM_THREADS": "1"}
    )
    assert answer.returncode == 0, answer.stdout[-6000:] + answer.stderr[-2000:]
