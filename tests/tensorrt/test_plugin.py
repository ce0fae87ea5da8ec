"""What the plugin library is to a registry, and what it says when something is wrong: one sentence each, and no crash."""

import base64
import re
from collections.abc import Iterator
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from gaussport.plugins.operator import Operator
from gaussport.plugins.registry import operators
from tests.tensorrt.cases import Prepared, read_prepared
from tests.tensorrt.plugin_host import CHAR, FLOAT32, INT8, INT32, Field, Plugin, PluginHost, Tensor, fields_of
from tests.tensorrt.recorder import Recorder

FILTER = "SeparableGaussianFilter"
ROUTING = "LatentMemoryRouting"


def described(prepared: Prepared, grid: int, batch: int) -> list[Tensor]:
    """Operands and output."""
    case = prepared.case
    shapes = [tuple(int(size or 0) for size in shape) for shape in case.shapes(grid, batch)]
    tensors = [Tensor(shape, dtype) for shape, dtype in zip(shapes, case.dtypes(), strict=True)]
    return [*tensors, tensors[0]]


@pytest.fixture
def plugin(host: PluginHost, odd_grids: Prepared, recorder: Recorder) -> Iterator[Plugin]:
    made = host.create(FILTER, fields_of(odd_grids.attributes))
    assert made is not None, host.take_log()
    yield made
    made.close()
    host.take_log()


def refused(host: PluginHost, operator: str, fields: dict[str, Field]) -> str:
    """The sentence with which a creator refuses."""
    assert host.create(operator, fields) is None
    return host.take_error()


def test_creators_are_the_operators(host: PluginHost) -> None:
    kinds = {float: FLOAT32, int: INT32}
    assert host.creators() == {
        (operator.name, "1", "gaussport"): {
            "kernels": CHAR,
            **{name: kinds[type(value)] for name, value in operator.attributes},
        }
        for operator in operators()
    }


@pytest.mark.parametrize("operator", operators(), ids=lambda operator: operator.name)
def test_operands_are_those_of_the_schema(host: PluginHost, packages: Path, operator: Operator) -> None:
    """The C++ knows each operand's axes; asked with one axis too many, it says them."""
    prepared = read_prepared(packages, "odd grids" if operator.name == FILTER else "masked causal")
    made = host.create(operator.name, fields_of(prepared.attributes))
    assert made is not None
    for position, operand in enumerate(operator.operands):
        shapes = [(-1,) * (len(other.letters) + (other is operand)) for other in operator.operands]
        assert made.output_shape(shapes) is None
        assert f"{operand.name} has shape [{', '.join('?' * (len(operand.letters) + 1))}]" in (error := host.take_error())
        assert error.endswith(f"should be [{', '.join(operand.letters)}]"), position
    required = [operand for operand in operator.operands if not operand.optional]
    assert made.output_shape([(-1,) * len(operand.letters) for operand in required]) is not None
    assert made.output_shape([(-1,) * len(operand.letters) for operand in required[:-1]]) is None
    assert f"of which {len(required)} must be given, but the node has {len(required) - 1}" in host.take_error()
    made.close()


def test_a_node_without_kernels_says_what_makes_them(host: PluginHost) -> None:
    assert "gaussport build-engine" in refused(host, FILTER, {})


def test_another_operators_kernels_are_refused(host: PluginHost, packages: Path, odd_grids: Prepared) -> None:
    assert f"is for {FILTER}, not for {ROUTING}" in refused(host, ROUTING, fields_of(odd_grids.attributes))


def test_attributes_must_be_those_of_the_kernels(host: PluginHost, packages: Path) -> None:
    fields = fields_of(read_prepared(packages, "masked causal").attributes)
    message = refused(host, ROUTING, {**fields, "epsilon": fields_of({"epsilon": 0.5})["epsilon"]})
    assert re.search(r'attribute "epsilon" is 0\.5\d* but the node\'s kernels were made for 0\.25', message)
    assert 'attribute "causal" is 0' in refused(host, ROUTING, {**fields, "causal": fields_of({"causal": 0})["causal"]})
    assert "is not a number" in refused(host, ROUTING, {**fields, "causal": Field(CHAR, b"yes")})


def test_a_newer_package_names_both_formats(host: PluginHost, odd_grids: Prepared) -> None:
    package = bytearray(base64.b64decode(str(odd_grids.attributes["kernels"])))
    package[8] = 2
    message = refused(host, FILTER, {"kernels": Field(INT8, bytes(package))})
    assert "has format 2, this library reads format 1" in message


@settings(max_examples=150, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture], derandomize=True)
@given(data=st.data())
def test_no_flipped_bit_passes(host: PluginHost, odd_grids: Prepared, data: st.DataObject) -> None:
    package = bytearray(base64.b64decode(str(odd_grids.attributes["kernels"])))
    bit = data.draw(st.integers(0, 8 * len(package) - 1) | st.integers(0, 8 * 64))
    package[bit // 8] ^= 1 << bit % 8
    assert re.search(
        "not a kernel package|has format|damaged", refused(host, FILTER, {"kernels": Field(INT8, bytes(package))})
    )


@settings(max_examples=100, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture], derandomize=True)
@given(data=st.data())
def test_no_damaged_text_passes(host: PluginHost, odd_grids: Prepared, data: st.DataObject) -> None:
    text = str(odd_grids.attributes["kernels"]).encode()
    place = data.draw(st.integers(0, len(text) - 1))
    damaged = data.draw(
        st.sampled_from([text[:place], text[:place] + b"!" + text[place + 1 :], text[:place] + b"=" + text[place + 1 :]])
        .filter(lambda other: other != text)
    )  # fmt: skip
    message = refused(host, FILTER, {"kernels": Field(CHAR, damaged)}) if damaged else refused(host, FILTER, {})
    assert message.count("\n") == 0
    assert re.search("cut off|damaged|not a kernel package|no attribute", message)


def test_other_types_are_refused_at_every_door(host: PluginHost, plugin: Plugin, odd_grids: Prepared) -> None:
    good = described(odd_grids, 0, 2)
    assert plugin.output_type(["fp16"] * 4) is None
    assert (
        "operands are [HALF, HALF, HALF, HALF] but kernels were compiled for [FLOAT, FLOAT, FLOAT, FLOAT]"
        in host.take_error()
    )
    for position in range(len(good)):
        wrong = [tensor._replace(dtype="fp16") if place == position else tensor for place, tensor in enumerate(good)]
        assert not plugin.supports_format(position, wrong)
        packed = [tensor._replace(format=4) if place == position else tensor for place, tensor in enumerate(good)]
        assert not plugin.supports_format(position, packed)
    assert plugin.configure([tensor._replace(dtype="bf16") for tensor in good]) != 0
    assert "operands are [BF16" in host.take_error()


def test_a_grid_without_kernels_is_refused_with_those_there_are(
    host: PluginHost, plugin: Plugin, odd_grids: Prepared, recorder: Recorder
) -> None:
    wrong = [tensor._replace(shape=(2, 9, 6, *tensor.shape[3:])) for tensor in described(odd_grids, 0, 2)]
    for ask in (plugin.configure, plugin.shape_change):
        assert ask(wrong) != 0
        message = host.take_error()
        assert "operands have B = 2, H = 9, W = 6" in message
        assert "compiled for H = 2, W = 17" in message
        assert "build the engine with kernels for it" in message


def test_operands_that_disagree_are_refused(host: PluginHost, plugin: Plugin, odd_grids: Prepared) -> None:
    shapes = [tensor.shape for tensor in described(odd_grids, 0, 2)[:4]]
    assert plugin.output_shape([*shapes[:3], (2, 9, 5, 2, 3)]) is None
    assert "weight has shape [2, 9, 5, 2, 3] but should be [b = 2, h = 9, w = 5, P = 2, R = 2]" in host.take_error()


def test_a_gpu_without_kernels_is_told_which_there_are(
    host: PluginHost, plugin: Plugin, odd_grids: Prepared, recorder: Recorder
) -> None:
    recorder.reset(75, 64 << 10)
    assert plugin.shape_change(described(odd_grids, 0, 2)) != 0
    message = host.take_error()
    assert "no kernels for this GPU, sm_75" in message
    assert "PTX for sm_89 and newer, sm_86; build it again for this GPU" in message


def test_without_a_driver_it_says_so(
    host: PluginHost, plugin: Plugin, odd_grids: Prepared, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("GAUSSPORT_CUDA_DRIVER", "/nowhere/libcuda.so")
    good = described(odd_grids, 0, 2)
    assert plugin.configure(good) == 0, "an engine is built without a GPU"
    assert plugin.tactics() == [], "and nothing is timed"
    host.take_log()
    assert plugin.shape_change(good) != 0
    assert "/nowhere/libcuda.so cannot be opened: a GPU and its driver are needed" in host.take_error()


@pytest.mark.parametrize(
    ("function", "result", "word"),
    [
        ("cuModuleLoadDataEx", 209, "CUDA_ERROR_NO_BINARY_FOR_GPU"),
        ("cuModuleGetFunction", 500, "CUDA_ERROR_NOT_FOUND"),
        ("cuFuncSetAttribute", 1, "CUDA_ERROR_INVALID_VALUE"),
        ("cuLaunchKernel", 719, "CUDA_ERROR_LAUNCH_FAILED"),
        ("cuCtxGetCurrent", 2, "CUDA_ERROR_OUT_OF_MEMORY"),
        ("cuDeviceGetAttribute", 101, "error 101"),
    ],
)
def test_every_answer_of_the_driver_is_checked(
    function: str, result: int, word: str, host: PluginHost, packages: Path, recorder: Recorder
) -> None:
    prepared = read_prepared(packages, "filter fp16")  # its tiles need more shared memory than is given without asking
    made = host.create(FILTER, fields_of(prepared.attributes))
    assert made is not None
    good = described(prepared, 0, 1)
    recorder.fail_next(function, result)
    failed = made.shape_change(good) != 0 or made.enqueue(good, [256] * 4, 256) != 0
    assert failed
    message = host.take_error()
    assert function in message
    assert word in message
    assert made.shape_change(good) == 0, "the next try is a new one"
    assert made.enqueue(good, [256] * 4, 256) == 0
    made.close()
    assert not [line for line in host.take_log() if line[0] in "01"]


def test_a_destroyed_context_takes_its_modules_along(
    host: PluginHost, plugin: Plugin, odd_grids: Prepared, recorder: Recorder
) -> None:
    attached = plugin.attach()
    recorder.set_context(9)
    assert attached.shape_change(described(odd_grids, 0, 1)) == 0
    recorder.destroy_context(9)
    attached.close()
    recorder.set_context(1)


def test_launches_that_cannot_be_are_refused(
    host: PluginHost, plugin: Plugin, odd_grids: Prepared, recorder: Recorder
) -> None:
    good = described(odd_grids, 0, 1)
    assert plugin.enqueue(good, [256] * 4, 256) != 0
    assert "no shape was announced" in host.take_error()
    assert plugin.shape_change(good) == 0
    host.take_log()
    assert plugin.enqueue(good, [256, 256, 264, 256], 256) != 0
    assert "not aligned to 16 bytes" in host.take_error()
    assert plugin.set_tactic(2) == 0
    assert plugin.enqueue(good, [256] * 4, 256, workspace=0) != 0
    assert "no workspace was given" in host.take_error()
    huge = [tensor._replace(shape=(2**31, *tensor.shape[1:])) for tensor in good]
    assert plugin.set_tactic(0) == 0
    assert plugin.enqueue(huge, [256] * 4, 256) != 0
    assert "more than a GPU takes in one launch: use a smaller batch" in host.take_error()
    recorder.set_context(0)
    assert plugin.shape_change(good) != 0
    assert "no CUDA context is current" in host.take_error()
    assert plugin.set_tactic(-1) != 0
    assert "there is no tactic -1" in host.take_error()
    recorder.set_context(1)


def test_workspace_holds_the_largest_batch(
    host: PluginHost, plugin: Plugin, odd_grids: Prepared, recorder: Recorder
) -> None:
    """The two-pass row pass is [B, H, W, P, R, D] in float32; where tactics may be timed, room is made for every one."""
    good = [tensor._replace(most=(4, *tensor.shape[1:])) for tensor in described(odd_grids, 0, 2)]
    assert plugin.configure(good) == 0
    assert plugin.tactics() == [1, 2]
    largest = max(4 * grid["H"] * grid["W"] * 2 * 2 * 7 * 4 for grid in odd_grids.case.grids)
    assert plugin.workspace_bytes(good) == -(-largest // 256) * 256


def test_its_name_and_its_kernels_are_in_the_layer_report(plugin: Plugin) -> None:
    assert plugin.name() == FILTER
    assert re.fullmatch("kernels [0-9a-f]{8}", plugin.metadata())
