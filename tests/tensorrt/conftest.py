"""As for the kernels' tests: `interpreted/` is collected only where TRITON_INTERPRET is set before triton is imported."""

import os
import shutil
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.tensorrt.binaries import Binaries, build_binaries
from tests.tensorrt.cases import CASES, Prepared, read_prepared, write_prepared
from tests.tensorrt.plugin_host import PluginHost
from tests.tensorrt.recorder import Recorder

INTERPRETS = os.environ.get("TRITON_INTERPRET") == "1"
collect_ignore_glob = [] if INTERPRETS else ["interpreted/*"]

if not INTERPRETS:
    for tool in ("cmake", "make", "g++"):
        if shutil.which(tool) is None:
            collect_ignore_glob.append("test_*.py")


@pytest.fixture(scope="session")
def binaries() -> Binaries:
    return build_binaries()


@pytest.fixture(scope="session")
def packages(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with every case's compiled package."""
    from gaussport.plugins.tensorrt.attributes import kernel_package, node_attributes

    folder = tmp_path_factory.mktemp("packages")
    for case in CASES.values():
        package = kernel_package(
            case.operator,
            [case.shapes(grid, None) for grid in range(len(case.grids))],
            case.dtype,
            architectures=case.architectures,
            attributes=case.attributes,
            mask_dtype=case.mask_dtype or "fp32",
            portable=case.portable,
            every_tactic=case.every_tactic,
        )
        write_prepared(folder, case, node_attributes(package), package)
    return folder


@pytest.fixture
def odd_grids(packages: Path) -> Prepared:
    return read_prepared(packages, "odd grids")


@pytest.fixture(scope="session")
def host(binaries: Binaries) -> PluginHost:
    return PluginHost(binaries.harness, binaries.library)


@pytest.fixture
def recorder(binaries: Binaries, monkeypatch: pytest.MonkeyPatch) -> Iterator[Recorder]:
    monkeypatch.setenv("GAUSSPORT_CUDA_DRIVER", str(binaries.driver))
    recorder = Recorder(binaries.driver)
    recorder.reset(86, 99 << 10)
    recorder.set_context(1)
    before = recorder.live_modules()
    yield recorder
    assert recorder.live_modules() == before, "a plugin left its modules in the driver"
