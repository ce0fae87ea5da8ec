"""The same C++ under the sanitizers of addresses and undefined behaviour: its whole life, two threads, damaged packages."""

import os
import subprocess
from pathlib import Path

import pytest

from tests.tensorrt.binaries import build_binaries
from tests.tensorrt.cases import read_prepared
from tests.tensorrt.plugin_host import DTYPES


@pytest.mark.timeout(900)  # two programs are compiled, on a machine that may be busy
@pytest.mark.parametrize("name", ["odd grids", "masked causal"])
def test_nothing_is_read_or_written_that_should_not_be(name: str, packages: Path, tmp_path: Path) -> None:
    binaries = build_binaries(sanitized=True)
    prepared = read_prepared(packages, name)
    file = tmp_path / "kernels"
    file.write_text(str(prepared.attributes["kernels"]))
    shapes = ["x".join(map(str, shape)) for shape in prepared.case.shapes(0, 2)]
    dtype = str(DTYPES[prepared.case.dtype])
    words = [str(binaries.selftest), str(binaries.library), prepared.case.operator, str(file), dtype, *shapes]
    environment = {**os.environ, "GAUSSPORT_CUDA_DRIVER": str(binaries.driver), "UBSAN_OPTIONS": "print_stacktrace=1"}
    answer = subprocess.run(words, capture_output=True, text=True, env=environment)
    assert answer.returncode == 0, answer.stderr[-4000:]
    assert answer.stdout.endswith("good\n")
