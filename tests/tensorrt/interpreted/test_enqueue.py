"""The compiled plugin, driven as TensorRT drives it, launches what computes the definition."""

import os
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest

from gaussport.plugins.kernels.architectures import SHARED_LIMIT_BYTES
from tests.tensorrt.cases import CASES, Prepared, read_prepared
from tests.tensorrt.operands import TOLERANCE, TORCH, defined, draw
from tests.tensorrt.plugin_host import RUNTIME, Plugin, PluginHost, Tensor, fields_of
from tests.tensorrt.recorder import RecordedLaunch, Recorder
from tests.tensorrt.replay import DeviceMemory, replay

FOLDER = Path(os.environ["GAUSSPORT_TEST_PACKAGES"])
MOST = 4


@pytest.fixture(scope="module")
def host() -> PluginHost:
    return PluginHost(FOLDER / "harness.so", FOLDER / "library.so")


@pytest.fixture
def recorder() -> Iterator[Recorder]:
    recorder = Recorder(Path(os.environ["GAUSSPORT_CUDA_DRIVER"]))
    recorder.reset(86, SHARED_LIMIT_BYTES[86])
    recorder.set_context(1)
    before = recorder.live_modules()
    yield recorder
    assert recorder.live_modules() == before, "a plugin left its modules in the driver"


def tensors(prepared: Prepared, grid: int, batch: int, ranged: bool = False) -> list[Tensor]:
    """Descriptions of the operands and the output; `ranged`: as while building for 1 to MOST images."""
    case = prepared.case
    shapes = [case.shapes(grid, size) for size in ((batch, 1, MOST) if ranged else (batch, batch, batch))]
    *inputs, dtype = *zip(*shapes, case.dtypes(), strict=True), case.dtype
    described = [Tensor(shape, kind, least, most) for shape, least, most, kind in inputs]
    like = described[0 if case.operator == "SeparableGaussianFilter" else 2]
    return [*described, like._replace(dtype=dtype)]


def made(host: PluginHost, prepared: Prepared) -> Plugin:
    """A plugin from a node's attributes, through all that TensorRT asks while it builds."""
    case = prepared.case
    plugin = host.create(case.operator, fields_of(prepared.attributes))
    assert plugin is not None, host.take_log()
    assert plugin.output_type(case.dtypes()) == case.dtype
    dynamic = [tuple(-1 if size is None else size for size in shape) for shape in case.shapes(0, None)]
    every = tensors(prepared, 0, 2, ranged=True)
    assert plugin.output_shape(dynamic) == (-1, *every[-1].shape[1:])
    assert all(plugin.supports_format(position, every) for position in range(len(every)))
    assert plugin.configure(every) == 0, host.take_log()
    return plugin


class Run:
    """One enqueue: its memory, and afterwards its output."""

    def __init__(self, prepared: Prepared, grid: int, batch: int, workspace_bytes: int, seed: int = 0) -> None:
        self.prepared = prepared
        self.memory = DeviceMemory()
        self.operands = draw(prepared.case, grid, batch, seed)
        self.tensors = tensors(prepared, grid, batch)
        self.inputs = [self.memory.upload(operand) for operand in self.operands]
        self.elements = int(np.prod(self.tensors[-1].shape))
        self.output = self.memory.allocate(self.elements * TORCH[prepared.case.dtype].itemsize)
        self.workspace = self.memory.allocate(workspace_bytes) if workspace_bytes else 0

    def enqueue(self, plugin: Plugin, stream: int = 0) -> int:
        return plugin.enqueue(self.tensors, self.inputs, self.output, self.workspace, stream)

    def check(self, launches: list[RecordedLaunch]) -> None:
        """Interpret the launches; the output is the definition's."""
        assert launches
        replay(launches, self.prepared.facts, self.memory)
        case = self.prepared.case
        output = self.memory.view(self.output, TORCH[case.dtype]).double().numpy()
        wanted = defined(case, self.operands).ravel()
        error = np.abs(output - wanted).max() / np.abs(wanted).max()
        assert error <= TOLERANCE[case.dtype], f"off by {error:.2e} of the largest value"


def alone(launches: list[RecordedLaunch], stream: int) -> list[RecordedLaunch]:
    return [launch for launch in launches if launch.stream == stream]


@pytest.mark.parametrize("name", CASES)
def test_every_tactic_computes_the_definition(name: str, host: PluginHost, recorder: Recorder) -> None:
    prepared = read_prepared(FOLDER, name)
    plugin = made(host, prepared)
    tactics = plugin.tactics()
    assert tactics == ([1, 2] if prepared.case.every_tactic else [])
    workspace = plugin.workspace_bytes(tensors(prepared, 0, 2, ranged=True))
    launched = []
    for tactic in tactics or [0]:
        attached = plugin.attach()
        assert attached.set_tactic(tactic) == 0
        run = Run(prepared, 0, 1 if "routing" in name or "filter" in name else 2, workspace)
        assert attached.shape_change(run.tensors) == 0
        recorder.reset(86, SHARED_LIMIT_BYTES[86])
        assert run.enqueue(attached) == 0
        run.check(recorder.launches())
        launched.append([launch.symbol for launch in recorder.launches()])
        attached.close()
    plugin.close()
    assert len({tuple(symbols) for symbols in launched}) == len(launched), "tactics differ in what they launch"


@pytest.mark.parametrize("name", ["odd grids", "masked causal", "fixed filter fp16"])
def test_every_batch_up_to_the_largest(name: str, host: PluginHost, recorder: Recorder) -> None:
    prepared = read_prepared(FOLDER, name)
    plugin = made(host, prepared)
    workspace = plugin.workspace_bytes(tensors(prepared, 0, 2, ranged=True))
    attached = plugin.attach()
    for batch in range(1, MOST + 1) if name == "odd grids" else (1, MOST):
        run = Run(prepared, 0, batch, workspace, seed=batch)
        recorder.reset(86, SHARED_LIMIT_BYTES[86])
        assert attached.shape_change(run.tensors) == 0
        assert run.enqueue(attached) == 0
        run.check(recorder.launches())
    attached.close()
    plugin.close()


def test_two_streams_and_two_contexts_share_nothing(host: PluginHost, recorder: Recorder) -> None:
    """Two execution contexts of one engine, each in a CUDA context of its own, launch in turns; whichever stream the GPU
    runs first, both are right. The workspace is what TensorRT would give: the split routing needs it."""
    prepared = read_prepared(FOLDER, "masked causal")
    plugin = made(host, prepared)
    workspace = plugin.workspace_bytes(tensors(prepared, 0, 2, ranged=True))
    attached, runs = {}, {}
    before = recorder.live_modules()
    for context in (1, 2):
        recorder.set_context(context)
        attached[context] = plugin.attach()
        runs[context] = Run(prepared, 0, context, workspace, seed=context)
        assert attached[context].set_tactic(2) == 0
        assert attached[context].shape_change(runs[context].tensors) == 0
    assert recorder.live_modules() - before == 2 * 3, "each context loads the three kernels of the split"
    recorder.reset(86, SHARED_LIMIT_BYTES[86])
    for context in (1, 2):
        recorder.set_context(context)
        assert runs[context].enqueue(attached[context], stream=100 + context) == 0
    launches = recorder.launches()
    assert [launch.context for launch in launches] == [1] * 3 + [2] * 3
    for context in (2, 1):
        runs[context].check(alone(launches, 100 + context))
        attached[context].close()
    plugin.close()


def test_two_streams_of_one_context_in_any_order(host: PluginHost, recorder: Recorder) -> None:
    prepared = read_prepared(FOLDER, "odd grids")
    plugin = made(host, prepared)
    workspace = plugin.workspace_bytes(tensors(prepared, 0, 2, ranged=True))
    one, two = plugin.attach(), plugin.attach()
    runs = [Run(prepared, 2, 1, workspace, seed=1), Run(prepared, 1, 3, workspace, seed=2)]
    for attached, run, stream in ((one, runs[0], 7), (two, runs[1], 8)):
        assert attached.shape_change(run.tensors) == 0
        assert run.enqueue(attached, stream) == 0
    launches = recorder.launches()
    assert {launch.stream for launch in launches} == {7, 8}
    runs[1].check(alone(launches, 8))
    runs[0].check(alone(launches, 7))
    for closed in (one, two, plugin):
        closed.close()


def test_what_is_serialized_comes_back_and_changes_shape(host: PluginHost, recorder: Recorder) -> None:
    """Serialize, deserialize, attach; then every grid of the package in turn, twice: kernels are loaded once."""
    prepared = read_prepared(FOLDER, "odd grids")
    built = made(host, prepared)
    workspace = built.workspace_bytes(tensors(prepared, 0, 2, ranged=True))
    fields = built.serialize()
    built.close()
    restored = host.create(prepared.case.operator, fields, RUNTIME)
    assert restored is not None
    assert restored.serialize() == fields
    attached = restored.attach()
    restored.close()  # the context's plugin lives on without it
    loaded = []
    for turn in range(2):
        for grid in range(len(prepared.case.grids)):
            run = Run(prepared, grid, len(prepared.case.grids) - grid, workspace, seed=turn)
            recorder.reset(86, SHARED_LIMIT_BYTES[86])
            assert attached.shape_change(run.tensors) == 0
            assert run.enqueue(attached) == 0
            if turn == 0:
                run.check(recorder.launches())
        loaded.append(recorder.loaded_modules())
    assert loaded[0] == loaded[1]
    attached.close()


def test_a_shape_that_nobody_announced_is_noticed(host: PluginHost, recorder: Recorder) -> None:
    prepared = read_prepared(FOLDER, "odd grids")
    plugin = made(host, prepared)
    workspace = plugin.workspace_bytes(tensors(prepared, 0, 2, ranged=True))
    first, second = Run(prepared, 0, 2, workspace), Run(prepared, 1, 3, workspace)
    attached = plugin.attach()
    assert attached.shape_change(first.tensors) == 0
    assert second.enqueue(attached) == 0
    second.check(recorder.launches())
    attached.close()
    plugin.close()


@pytest.mark.parametrize(("architecture", "ptx"), [(86, False), (89, True), (121, True)])
def test_a_gpu_without_machine_code_compiles_the_text(
    architecture: int, ptx: bool, host: PluginHost, recorder: Recorder
) -> None:
    prepared = read_prepared(FOLDER, "odd grids")
    recorder.reset(architecture, 99 << 10)
    plugin = made(host, prepared)
    run = Run(prepared, 0, 2, plugin.workspace_bytes(tensors(prepared, 0, 2, ranged=True)))
    attached = plugin.attach()
    assert attached.shape_change(run.tensors) == 0, host.take_log()
    assert run.enqueue(attached) == 0
    launches = recorder.launches()
    assert all(launch.is_ptx == ptx for launch in launches)
    run.check(launches)
    attached.close()
    plugin.close()


def test_a_clone_runs_by_itself(host: PluginHost, recorder: Recorder) -> None:
    """TensorRT's builder times clones that were never attached."""
    prepared = read_prepared(FOLDER, "mask of booleans")
    plugin = made(host, prepared)
    clone = plugin.clone()
    plugin.close()
    run = Run(prepared, 0, 2, 0)
    assert clone.shape_change(run.tensors) == 0
    assert run.enqueue(clone) == 0
    run.check(recorder.launches())
    clone.close()


def test_what_was_not_launched_is_noticed(host: PluginHost, recorder: Recorder) -> None:
    """The oracle's own test: without its last launch a run is not the definition."""
    prepared = read_prepared(FOLDER, "masked causal")
    plugin = made(host, prepared)
    attached = plugin.attach()
    assert attached.set_tactic(2) == 0
    run = Run(prepared, 0, 2, plugin.workspace_bytes(tensors(prepared, 0, 2, ranged=True)))
    assert attached.shape_change(run.tensors) == 0
    assert run.enqueue(attached) == 0
    launches = recorder.launches()
    with pytest.raises(AssertionError, match="off by"):
        run.check(launches[:-1])
    run.check(launches)
    attached.close()
    plugin.close()
