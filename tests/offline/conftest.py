"""A small bundle, pictures of which one is damaged, and the command."""

import subprocess
import sys
from pathlib import Path

import pytest

from tests.serving.conftest import encoded, picture, write_tiny

COUNT = 80
CLASSIFY = [sys.executable, "-m", "gaussport", "classify"]


@pytest.fixture(scope="session")
def tiny(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_tiny(tmp_path_factory.mktemp("bundles") / "tiny")


@pytest.fixture(scope="session")
def slow(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_tiny(tmp_path_factory.mktemp("bundles") / "slow", slow_loops=40)


@pytest.fixture(scope="session")
def pictures(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("pictures")
    for seed in range(COUNT):
        (folder / f"{seed:03}.png").write_bytes(encoded(picture(seed)))
    (folder / "050.png").write_bytes(b"no picture")
    return folder


def classify(*words: str | Path) -> subprocess.CompletedProcess[str]:
    return subprocess.run([*CLASSIFY, *map(str, words), "--threads", "1"], capture_output=True, text=True)
