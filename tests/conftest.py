"""What every test shares: how hypothesis searches, and which files begin."""

import os

import pytest
from hypothesis import settings

# No deadline: the machine may be busy, and timings are never asserted. Under CI the search is the same on every run.
settings.register_profile("gaussport", deadline=None, derandomize="CI" in os.environ)
settings.load_profile("gaussport")

SLOW = ("kernels", "cluster", "tensorrt", "packaging", "export")
"""Folders with files of minutes. They go first: a worker that begins one when the others are done keeps all waiting."""


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    items.sort(key=lambda item: SLOW.index(item.path.parent.name) if item.path.parent.name in SLOW else len(SLOW))
