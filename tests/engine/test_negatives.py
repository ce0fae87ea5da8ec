"""What TensorRT itself refuses, or dies of, becomes one sentence; and a function body never runs in silence."""

import json
import subprocess
import sys
from collections.abc import Callable
from functools import cache
from pathlib import Path
from typing import Any

import onnx
import pytest

from gaussport.errors import EngineError
from gaussport.export.engine import isolation
from gaussport.export.engine.backend import soname_links
from gaussport.export.engine.graph import plugin_nodes, prepare_graph, set_attributes
from gaussport.export.engine.isolation import run_worker
from gaussport.export.engine.request import MODEL, Request
from gaussport.export.passes import keep_bodies, operate, untag_plugins

pytestmark = pytest.mark.usefixtures("rtx", "quick_kernels")


@pytest.fixture
def worker(bundles: Callable[[str], Path], tmp_path: Path) -> Callable[..., Any]:
    """`worker(change, …)`: what the worker answers for the GMA bundle's graph after `change`, or the error."""
    from gaussport.export.engine.plugin_library import PluginLibrary

    @cache
    def equipped() -> tuple[onnx.ModelProto, str, tuple[tuple[str, str], ...]]:
        library = PluginLibrary.build()
        model = prepare_graph(onnx.load(bundles("gma") / "model.onnx"), "fp32", "fp32", plugins=True)
        nodes = plugin_nodes(model)
        library.equip(model, nodes, 86)
        return model, str(library.path), tuple((node.name, node.operator) for node in nodes)

    def run(change: Callable[[onnx.ModelProto], onnx.ModelProto | None] = lambda model: None, **fields: Any) -> Any:
        model, library, nodes = equipped()
        own = onnx.ModelProto()
        own.CopyFrom(model)
        own = change(own) or own
        (tmp_path / MODEL).write_bytes(own.SerializeToString())
        request: dict[str, Any] = {
            "builder": "tensorrt-rtx",
            "architecture": 86,
            "precision": "fp32",
            "batches": (1, 8, 8),
            "probes": (1, 2, 7, 8),
            "plugin_nodes": nodes,
            "plugin_library": library,
            "timing_cache": None,
        }
        return run_worker(Request(**request | fields), tmp_path)

    return run


def set_all(**attributes: Any) -> Callable[[onnx.ModelProto], None]:
    def change(model: onnx.ModelProto) -> None:
        set_attributes(model, {node.name: attributes for node in model.graph.node if node.domain == "gaussport"})

    return change


def test_a_missing_library_is_an_error_that_names_the_plugin(worker: Callable[..., Any]) -> None:
    with pytest.raises(EngineError, match=r"has no plugin LatentMemoryRouting version 1 in 'gaussport', it has Myelin"):
        worker(plugin_library=None)


def test_a_file_that_is_no_library_is_an_error(worker: Callable[..., Any], tmp_path: Path) -> None:
    (tmp_path / "broken.so").write_bytes(b"\x7fELF nothing")
    with pytest.raises(EngineError, match=r"cannot load the plugin library .*broken\.so: "):
        worker(plugin_library=str(tmp_path / "broken.so"))


def test_a_body_in_the_place_of_a_plugin_is_an_error(worker: Callable[..., Any]) -> None:
    with pytest.raises(EngineError, match=r"made blocks\.0\.attn into .* instead of a plugin: its function body would run"):
        worker(lambda model: keep_bodies(operate(model, untag_plugins)))


def test_a_plugin_of_another_version_is_an_error_and_no_body(worker: Callable[..., Any]) -> None:
    with pytest.raises(
        EngineError, match=r"cannot parse the graph: blocks\.0\.attn LatentMemoryRouting: .*Plugin not found"
    ):
        worker(set_all(plugin_version="2"))


@pytest.mark.parametrize("kernels", ["bm90IGEgcGFja2FnZQ==", "%%%"], ids=["no package", "no base64"])
def test_a_damaged_kernel_package_is_an_error(worker: Callable[..., Any], kernels: str) -> None:
    with pytest.raises(EngineError, match=r"TensorRT cannot (parse|build)"):
        worker(set_all(kernels=kernels))


def test_a_precision_that_the_layers_do_not_have_is_an_error(worker: Callable[..., Any]) -> None:
    with pytest.raises(EngineError, match=r"fp16 was asked for but the layers that TensorRT made of the graph are \d+ fp32"):
        worker(precision="fp16")


def test_a_graph_that_cannot_be_parsed_is_an_error(worker: Callable[..., Any]) -> None:
    def unknown(model: onnx.ModelProto) -> None:
        next(node for node in model.graph.node if node.op_type == "Gelu").op_type = "NoSuchOperator"

    with pytest.raises(EngineError, match=r"TensorRT cannot parse the graph: blocks\.0\.mlp\.1/Gelu NoSuchOperator: "):
        worker(unknown)


def test_a_crash_of_tensorrt_is_a_sentence(worker: Callable[..., Any], monkeypatch: pytest.MonkeyPatch) -> None:
    if not soname_links("tensorrt-rtx"):
        pytest.skip("this TensorRT-RTX has the library name whose absence makes it abort")
    monkeypatch.setattr(isolation, "soname_links", lambda builder: {})
    with pytest.raises(EngineError, match=r"TensorRT-RTX ended its process with SIG(ABRT|SEGV) after saying: "):
        worker()


_TIMING_CACHE = """
import json, os, sys, warnings
from pathlib import Path
warnings.simplefilter("ignore")
import tensorrt_rtx as trt
from gaussport.export.engine.log import Messages, make_logger
from gaussport.export.engine.timing_cache import attach_timing_cache, save_timing_cache
folder = Path(sys.argv[1])
messages = Messages(folder / "log")
builder = trt.Builder(make_logger(trt, messages))
answers = {}
for name in ("missing", "empty", "random", "deep/er/cache"):
    config, path = builder.create_builder_config(), folder / name
    if name == "empty": path.write_bytes(b"")
    if name == "random": path.write_bytes(os.urandom(1024))
    warning = attach_timing_cache(config, path, messages)
    answers[name] = [warning, save_timing_cache(config, path), path.read_bytes()[:4].hex(), messages.errors]
config = builder.create_builder_config()
attach_timing_cache(config, Path("/proc/1/none"), messages)
answers["unwritable"] = save_timing_cache(config, Path("/proc/1/none"))
answers["left"] = sorted(path.name for path in folder.rglob(".*"))
print(json.dumps(answers))
"""


def test_a_bad_timing_cache_costs_a_warning_and_is_written_anew(tmp_path: Path) -> None:
    done = subprocess.run([sys.executable, "-c", _TIMING_CACHE, str(tmp_path)], capture_output=True, text=True, timeout=60)
    assert done.returncode == 0, done.stderr
    answers = json.loads(done.stdout)
    assert answers["missing"][:2] == [None, None]
    assert answers["deep/er/cache"][:2] == [None, None]
    assert "is empty and is written anew" in answers["empty"][0]
    assert "cannot be used and is written anew" in answers["random"][0]
    assert "cannot be written" in answers["unwritable"]
    heads = {answers[name][2] for name in ("missing", "empty", "random", "deep/er/cache")}
    assert len(heads) == 1
    assert answers["random"][3] == []  # told once, and no reason for a later failure
    assert answers["left"] == []


_REGISTRATION = """
import shutil, sys
from pathlib import Path
import tensorrt_rtx as trt
from gaussport.plugins.tensorrt.library import build_library
from gaussport.serving.tensorrt_libraries import load_tensorrt, register_plugins
library = load_tensorrt("tensorrt-rtx")
copy = Path(shutil.copy(build_library(), sys.argv[1]))
for path in (build_library(), build_library(), copy):
    register_plugins(library, path)
print(sorted(f"{c.name} {c.plugin_version} {c.plugin_namespace}" for c in trt.get_plugin_registry().all_creators))
"""


def test_the_library_registers_itself_once_with_the_real_registry(tmp_path: Path) -> None:
    """As serving does it, without TensorRT's Python package; twice, and from a second copy as of a second bundle."""
    done = subprocess.run([sys.executable, "-c", _REGISTRATION, str(tmp_path)], capture_output=True, text=True, timeout=60)
    assert done.returncode == 0, done.stderr
    ours = [name for name in json.loads(done.stdout.replace("'", '"')) if name.endswith("gaussport")]
    assert ours == ["LatentMemoryRouting 1 gaussport", "SeparableGaussianFilter 1 gaussport"]
