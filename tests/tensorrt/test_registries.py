"""NVIDIA's own registries take the library: TensorRT-RTX's, and the lean TensorRT's where it is installed."""

import importlib.util
import json
import subprocess
import sys

import pytest

from gaussport.plugins.registry import operators
from tests.tensorrt.binaries import Binaries

LISTING = """
import json, sys
import {module} as trt
registry = trt.get_plugin_registry()
before = len(registry.all_creators)
assert registry.load_library(sys.argv[1]) is not None
ours = [creator for creator in registry.all_creators if creator.plugin_namespace == "gaussport"]
print(json.dumps({{
    creator.name: [creator.plugin_version, sorted([field.name, str(field.type)] for field in creator.field_names)]
    for creator in ours
}}))
"""


@pytest.mark.parametrize("module", ["tensorrt_rtx", "tensorrt_lean", "tensorrt"])
def test_the_registry_lists_every_operator_and_its_fields(module: str, binaries: Binaries) -> None:
    if importlib.util.find_spec(module) is None:
        pytest.skip(f"{module} is not installed")
    words = [sys.executable, "-c", LISTING.format(module=module), str(binaries.library)]
    answer = subprocess.run(words, capture_output=True, text=True)
    assert answer.returncode == 0, answer.stderr
    listed = json.loads(answer.stdout.splitlines()[-1])
    kinds = {float: "PluginFieldType.FLOAT32", int: "PluginFieldType.INT32"}
    assert listed == {
        operator.name: [
            "1",
            sorted(
                [["kernels", "PluginFieldType.CHAR"], *([name, kinds[type(value)]] for name, value in operator.attributes)]
            ),
        ]
        for operator in operators()
    }
