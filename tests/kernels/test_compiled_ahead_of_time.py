"""Kernels compiled without a GPU: they fit their architecture, spill nothing, and say all that a launcher must know."""

import os
from dataclasses import replace

import pytest

pytest.importorskip("triton", reason="kernels are compiled by triton")
if os.environ.get("TRITON_INTERPRET") == "1":
    pytest.skip("this process interprets kernels", allow_module_level=True)

from gaussport.errors import ExportError, UsageError
from gaussport.plugins.kernels import table
from gaussport.plugins.kernels.aot import KernelImage, compile_launch
from gaussport.plugins.kernels.architectures import SHARED_LIMIT_BYTES
from gaussport.plugins.kernels.launch import Launch
from gaussport.plugins.kernels.resources import Resources, read_resources
from gaussport.plugins.kernels.shapes import FILTERS, ROUTINGS
from gaussport.plugins.latent_memory_routing.triton_launch import Types
from gaussport.plugins.latent_memory_routing.triton_launch import plan as routing_plan
from gaussport.plugins.separable_gaussian_filter.triton_launch import plan as filter_plan


def filter_launch(dtype: str, architecture: int) -> Launch:
    limit = SHARED_LIMIT_BYTES[architecture]
    return filter_plan(FILTERS["SSOG d256"], dtype, shared_limit_bytes=limit).launches[0]


def routing_launch(dtype: str, architecture: int) -> Launch:
    return routing_plan(ROUTINGS["GMA d384"], Types(dtype)).launches[0]


@pytest.fixture(scope="module")
def image() -> KernelImage:
    return compile_launch(filter_launch("fp16", 86), 86)


@pytest.mark.parametrize("launch", [filter_launch, routing_launch], ids=["filter", "routing"])
@pytest.mark.parametrize("architecture", [86, 90])
@pytest.mark.parametrize("dtype", ["fp16", "fp32"])
def test_published_shapes_spill_nothing(launch: object, architecture: int, dtype: str) -> None:
    planned = launch(dtype, architecture)  # type: ignore[operator]
    used = read_resources(compile_launch(planned, architecture))
    assert used.spill_bytes == 0
    assert used.shared_bytes <= SHARED_LIMIT_BYTES[architecture]
    assert used.registers * 32 * planned.num_warps <= 65536


def test_parameters_are_in_the_order_of_the_kernel(image: KernelImage) -> None:
    names = [parameter.name for parameter in image.parameters]
    assert names == ["value", "offset", "width", "weight", "output", "field_batch", "H", "W", "P",
                     "global_scratch", "profile_scratch"]  # fmt: skip
    kinds = [parameter.type for parameter in image.parameters]
    assert kinds == ["pointer"] * 5 + ["int32"] * 4 + ["pointer"] * 2
    assert image.ptx.split(".entry")[1].split(")")[0].count(".param") == len(names)


def test_no_file_name_of_the_compiling_machine_is_in_the_image(image: KernelImage) -> None:
    assert ".file" not in image.ptx
    assert b"triton_kernel" not in image.cubin


def test_ptx_asks_for_no_newer_driver_than_needed(image: KernelImage) -> None:
    assert ".version 8.0" in image.ptx
    assert ".target sm_86" in image.ptx
    assert image.symbol in image.ptx


def test_content_hash_follows_the_content(image: KernelImage) -> None:
    launch = filter_launch("fp16", 86)
    assert compile_launch(launch, 86).content_hash == image.content_hash
    assert compile_launch(replace(launch, num_warps=4), 86).content_hash != image.content_hash


def test_absent_mask_takes_no_parameter() -> None:
    image = compile_launch(routing_launch("fp16", 86), 86)
    assert "key_mask" not in [parameter.name for parameter in image.parameters]
    masked = replace(ROUTINGS["GMA d384"], masked=True)
    image = compile_launch(routing_plan(masked, Types("fp16", key_mask="fp32")).launches[0], 86)
    assert "key_mask" in [parameter.name for parameter in image.parameters]


def test_unknown_architecture_is_refused_in_words() -> None:
    with pytest.raises(ExportError, match="sm_75 is not an architecture we compile for"):
        compile_launch(filter_launch("fp16", 86), 75)


def test_table_marks_spills() -> None:
    row = ("SSOG d256", "filter_fused", "fp16")
    text = table._markdown({(row, 86): Resources(255, 16, 2048), (row, 90): Resources(183, 0, 1024)})
    assert "| SSOG d256 | `filter_fused` | fp16 | — | 255 **+16** · 2 | — | 183 · 1 | — | — |" in text


def test_table_goes_between_its_marks() -> None:
    assert table._between_marks(f"a\n{table.BEGIN}\nold\n{table.END}\nb", "new\n") == (
        f"a\n{table.BEGIN}\n\nnew\n\n{table.END}\nb"
    )
    with pytest.raises(UsageError, match="to write the table between"):
        table._between_marks("a page without marks", "new\n")
