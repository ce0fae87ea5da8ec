"""Runs the tests in `interpreted/` in a process of their own, where Triton interprets what the plugin launches."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests.tensorrt.binaries import Binaries

INTERPRETED = Path(__file__).with_name("interpreted")


@pytest.mark.skipif(os.environ.get("TRITON_INTERPRET") == "1", reason="this process already interprets kernels")
@pytest.mark.timeout(900)
def test_what_the_plugin_launches_equals_the_definition(packages: Path, binaries: Binaries) -> None:
    (packages / "library.so").symlink_to(binaries.library)
    (packages / "harness.so").symlink_to(binaries.harness)
    environment = {name: value for name, value in os.environ.items() if not name.startswith(("PYTEST_", "COV_"))}
    environment |= {
        "TRITON_INTERPRET": "1",
        "OMP_NUM_THREADS": "1",
        "GAUSSPORT_TEST_PACKAGES": str(packages),
        "GAUSSPORT_CUDA_DRIVER": str(binaries.driver),
    }
    command = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", "--durations=8", str(INTERPRETED)]
    answer = subprocess.run(command, capture_output=True, text=True, env=environment)
    assert answer.returncode == 0, answer.stdout[-8000:] + answer.stderr[-2000:]
