"""The C++ side of these tests: built from `harness/` around the plugin library, kept in the user's cache."""

from dataclasses import dataclass
from pathlib import Path

from gaussport.plugins.tensorrt.library import LIBRARY, PLUGINS, build

HARNESS_FOLDER = Path(__file__).with_name("harness")


@dataclass(frozen=True)
class Binaries:
    """Paths of what was built, all in one folder."""

    folder: Path

    @property
    def library(self) -> Path:
        return self.folder / LIBRARY

    @property
    def harness(self) -> Path:
        return self.folder / "libgaussport_harness.so"

    @property
    def driver(self) -> Path:
        return self.folder / "libgaussport_recording_driver.so"

    @property
    def selftest(self) -> Path:
        return self.folder / "gaussport_selftest"


def build_binaries(sanitized: bool = False) -> Binaries:
    """The library, the harness and the recording driver; with sanitizers, the program that drives them too.

    What is tested is built without optimisation: the code is small, and compiling it is what costs time.
    """
    products = [LIBRARY, "libgaussport_harness.so", "libgaussport_recording_driver.so"]
    flags = [
        "-DCMAKE_BUILD_TYPE=Debug",
        "-DCMAKE_CXX_FLAGS_DEBUG=-O0",
        "-DCMAKE_UNITY_BUILD=ON",
        "-DCMAKE_UNITY_BUILD_BATCH_SIZE=0",
    ]
    if sanitized:
        products.append("gaussport_selftest")
        flags += ["-DGAUSSPORT_SANITIZE=ON", "-DCMAKE_BUILD_RPATH_USE_ORIGIN=ON"]
    return Binaries(build(HARNESS_FOLDER, [PLUGINS, HARNESS_FOLDER], products, flags=flags))
