"""The attributes that make a node of the operators' domain a TensorRT plugin, compiled kernels among them.

Needs torch and triton, but no GPU.
"""

import base64
import importlib
from collections.abc import Mapping, Sequence
from functools import cache

from gaussport.errors import ExportError
from gaussport.plugins.kernels.aot import KernelImage, compile_launch
from gaussport.plugins.kernels.architectures import (
    ARCHITECTURES,
    FALLBACK_PTX_ARCHITECTURE,
    LEAST_SHARED_LIMIT_BYTES,
    SHARED_LIMIT_BYTES,
)
from gaussport.plugins.kernels.launch import DTYPES, Launch, Plan
from gaussport.plugins.operator import Operator
from gaussport.plugins.registry import operators
from gaussport.plugins.tensorrt import KERNELS, NAMESPACE, VERSION
from gaussport.plugins.tensorrt.package import BATCH, CompiledPlan, KernelPackage, Tactic, Variant
from gaussport.plugins.tensorrt.package import DTYPES as OPERAND_DTYPES

OperandShapes = Sequence[Sequence[int | None] | None]
"""One shape per operand, in the schema's order; a dynamic batch axis is None, and so is an operand that is not given."""

_ANY_BATCH = 2**31 - 1  # stands for the batch while letters are bound; no axis is that long


def plugin_attributes(
    operator: str,
    shapes: Sequence[OperandShapes],
    dtype: str,
    *,
    architectures: Sequence[int] = ARCHITECTURES,
    attributes: Mapping[str, int | float] | None = None,
    mask_dtype: str = "fp32",
    portable: bool = True,
    every_tactic: bool = True,
) -> dict[str, str | int | float]:
    """Attributes for one node: `plugin_namespace`, `plugin_version`, `kernels` (base64), and the operator's own.

    Args:
        operator: the node's op_type.
        shapes: the sets of operand shapes that may be run, one for a model of one grid. Only the batch may be None.
        dtype: Triton's name of the operands' and the output's dtype: "fp32", "fp16" or "bf16".
        architectures: compute capabilities, such as 86, to compile for.
        attributes: the node's `epsilon` and `causal` where they differ from the schema's defaults.
        mask_dtype: dtype of an optional operand: one of `package.DTYPES`.
        portable: add PTX, from which a driver compiles for GPUs newer than `FALLBACK_PTX_ARCHITECTURE` that have no cubin.
        every_tactic: compile every way to run, for TensorRT to time; else only the one that is taken without timing.

    Raises:
        ExportError: there is no such operator, dtype or architecture; shapes do not fit the operator; or its kernels
            cannot serve them.
    """
    package = kernel_package(
        operator,
        shapes,
        dtype,
        architectures=architectures,
        attributes=attributes,
        mask_dtype=mask_dtype,
        portable=portable,
        every_tactic=every_tactic,
    )
    return node_attributes(package)


def node_attributes(package: KernelPackage) -> dict[str, str | int | float]:
    """What `plugin_attributes` returns, for a package at hand."""
    return {
        "plugin_namespace": NAMESPACE,
        "plugin_version": VERSION,
        KERNELS: base64.b64encode(package.serialize()).decode("ascii"),
        **package.attributes,
    }


def kernel_package(
    operator: str,
    shapes: Sequence[OperandShapes],
    dtype: str,
    *,
    architectures: Sequence[int] = ARCHITECTURES,
    attributes: Mapping[str, int | float] | None = None,
    mask_dtype: str = "fp32",
    portable: bool = True,
    every_tactic: bool = True,
) -> KernelPackage:
    """The compiled kernels of one node; arguments and errors as for `plugin_attributes`."""
    schema = _operator(operator)
    _check_choices(dtype, mask_dtype, architectures)
    values = dict(schema.attributes)
    for name, value in (attributes or {}).items():
        if name not in values:
            raise ExportError(f"{operator} has no attribute {name}: it has {sorted(values) or 'none'}")
        values[name] = type(values[name])(value)
    targets = [(architecture, SHARED_LIMIT_BYTES[architecture], False) for architecture in sorted(set(architectures))]
    if portable:
        targets.append((FALLBACK_PTX_ARCHITECTURE, LEAST_SHARED_LIMIT_BYTES, True))
    variants = []
    for operands in shapes:
        types = _types(schema, operands, dtype, mask_dtype)
        sizes = _sizes(schema, operands)
        tactics = _tactics(schema, sizes, types, values, targets, every_tactic)
        given = tuple(types.get(operand.name) for operand in schema.operands)
        variants.append(Variant((*given, dtype), _with_batch(sizes), tactics))
    if not variants:
        raise ExportError(f"{operator}: no shapes were given to compile kernels for: give one set of operand shapes or more")
    buffers = (*(operand.name for operand in schema.operands), "output")
    return KernelPackage(operator, buffers, values, tuple(variants))


def _operator(name: str) -> Operator:
    found = {operator.name: operator for operator in operators()}
    if name not in found:
        raise ExportError(f"{name} is not an operator with a TensorRT plugin: there are {sorted(found)}")
    return found[name]


def _check_choices(dtype: str, mask_dtype: str, architectures: Sequence[int]) -> None:
    if dtype not in DTYPES:
        raise ExportError(f"kernels are compiled for {', '.join(DTYPES)}, not {dtype}: choose one of them")
    if mask_dtype not in OPERAND_DTYPES:
        raise ExportError(f"a mask may be {', '.join(OPERAND_DTYPES)}, not {mask_dtype}: choose one of them")
    if not architectures:
        raise ExportError(f"no architecture to compile for was given: choose from {list(ARCHITECTURES)}")
    for architecture in architectures:
        if architecture not in ARCHITECTURES:
            raise ExportError(
                f"sm_{architecture} is not an architecture we compile for: choose one of {list(ARCHITECTURES)}"
            )


def _types(schema: Operator, operands: OperandShapes, dtype: str, mask_dtype: str) -> dict[str, str]:
    if len(operands) > len(schema.operands):
        raise ExportError(f"{schema.name} has {len(schema.operands)} operands, but {len(operands)} shapes were given")
    named = zip(schema.operands, operands, strict=False)
    return {operand.name: mask_dtype if operand.optional else dtype for operand, shape in named if shape is not None}


def _sizes(schema: Operator, operands: OperandShapes) -> dict[str, int]:
    """The size of every letter, `_ANY_BATCH` for the batch, whether the model fixes it or not."""
    if not operands or operands[0] is None:
        raise ExportError(f"{schema.name}: the shape of {schema.operands[0].name} is not known")
    batch_letter, batch = schema.operands[0].letters[0], operands[0][0]
    bound: list[list[int] | None] = []
    for operand, shape in zip(schema.operands, (*operands, *[None] * len(schema.operands)), strict=False):
        if shape is None:
            if not operand.optional:
                raise ExportError(f"{schema.name}: the shape of {operand.name} is not known")
            bound.append(None)
            continue
        axes = list(shape)
        if axes and (axes[0] is None or operand.letters[0] == batch_letter or (axes[0] == batch and batch != 1)):
            axes[0] = _ANY_BATCH
        if None in axes:
            raise ExportError(
                f"{schema.name}: {operand.name} has shape {axes[1:]} after its batch, of which some axes are dynamic: "
                "give one set of shapes for every grid that may be run"
            )
        bound.append([size for size in axes if size is not None])
    try:
        return schema.bind(bound)
    except ValueError as error:
        raise ExportError(str(error)) from error


def _with_batch(sizes: Mapping[str, int]) -> dict[str, int]:
    return {letter: BATCH if size == _ANY_BATCH else size for letter, size in sizes.items()}


def _tactics(
    schema: Operator,
    sizes: Mapping[str, int],
    types: Mapping[str, str],
    attributes: Mapping[str, int | float],
    targets: Sequence[tuple[int, int, bool]],
    every_tactic: bool,
) -> tuple[Tactic, ...]:
    """Each target takes its own best plan first; later tactics may be missing from some targets."""
    module = importlib.import_module(f"gaussport.plugins.{schema.folder}.tensorrt_plugin")
    compiled: list[list[CompiledPlan]] = []
    for architecture, limit, portable in targets:
        choices = list(module.tactics(sizes, types, attributes, limit).items())
        for place, (name, plan) in enumerate(choices if every_tactic else choices[:1]):
            if place == len(compiled):
                compiled.append([])
            compiled[place].append(_compile(name, plan, architecture, portable))
    return tuple(Tactic(tuple(plans)) for plans in compiled)


def _compile(name: str, plan: Plan, architecture: int, portable: bool) -> CompiledPlan:
    images = tuple(_image(_Compilation(launch, architecture)) for launch in plan.launches)
    return CompiledPlan(name, plan, images, portable)


class _Compilation:
    """A launch and its target, equal to another when the same machine code comes out."""

    def __init__(self, launch: Launch, architecture: int) -> None:
        self.launch = launch
        self.architecture = architecture
        arguments = tuple((name, getattr(value, "dtype", type(value))) for name, value in launch.arguments.items())
        options = tuple(sorted(launch.options.items()))
        self.key = (launch.name, arguments, tuple(launch.constants.items()), options, architecture)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, _Compilation) and self.key == other.key

    def __hash__(self) -> int:
        return hash(self.key)


@cache
def _image(compilation: _Compilation) -> KernelImage:
    """Layers of one model launch the same kernels: each is compiled, or fetched from Triton's cache, once per process."""
    return compile_launch(compilation.launch, compilation.architecture)
