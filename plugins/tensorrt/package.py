"""The kernel package: all that the C++ plugin must know of compiled kernels and their plans, as one run of bytes.

    header   magic "GPKERNEL" · version u32 · length of the whole u64 · CRC-32 of the body u32
    body     operator · attributes · images · variants

Little-endian, nothing aligned. A text is a u8 length and that many bytes of ASCII; a list is a count and its entries.
`cpp/kernel_package.cpp` reads it; this module writes it; nothing else knows it.
"""

import struct
import zlib
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TypeVar

from gaussport.plugins.kernels.aot import KernelImage
from gaussport.plugins.kernels.launch import Buffer, Launch, Plan

MAGIC = b"GPKERNEL"
FORMAT_VERSION = 1
BATCH = -1
"""A letter's size that means: as many as there are images."""

DTYPES = {"fp32": 1, "fp16": 2, "bf16": 3, "i32": 4, "i64": 5, "i1": 6}
"""Triton's names of the dtypes of operands, and their codes; 0 is an operand that is not given."""

ELEMENT_BYTES = {"fp32": 4, "fp16": 2, "bf16": 2}
CUBIN, PTX = 0, 1
PARAMETER_TYPES = {"pointer": 0, "int32": 1, "float32": 2}
OPERAND, WORKSPACE, INT32, FLOAT32, NULL = range(5)


@dataclass(frozen=True)
class CompiledPlan:
    """A plan whose launches are compiled, in order, for one architecture; `portable` ones are given as PTX."""

    name: str
    plan: Plan
    images: tuple[KernelImage, ...]
    portable: bool = False


@dataclass(frozen=True)
class Tactic:
    """One way to run a variant: a compiled plan per architecture, exact ones before portable ones."""

    plans: tuple[CompiledPlan, ...]


@dataclass(frozen=True)
class Variant:
    """What runs for one set of operand types and sizes.

    Attributes:
        types: Triton's dtype name of each operand in order (None: not given) and of the output.
        sizes: of every letter, `BATCH` where it is the number of images.
        tactics: the one to take without timing first.
    """

    types: tuple[str | None, ...]
    sizes: Mapping[str, int]
    tactics: tuple[Tactic, ...]


@dataclass(frozen=True)
class KernelPackage:
    """Everything that one node's plugin needs. `buffers` are its operands and output by name, in the plugin's order."""

    operator: str
    buffers: tuple[str, ...]
    attributes: Mapping[str, int | float]
    variants: tuple[Variant, ...]

    def serialize(self) -> bytes:
        """The package's bytes: header and body."""
        store = _ImageStore()
        variants = _list("I", self.variants, lambda variant: _variant(variant, self.buffers, store))
        body = b"".join(
            (
                _text(self.operator),
                _list("B", self.attributes.items(), lambda item: _attribute(*item)),
                _list("I", store.entries, lambda entry: entry),
                variants,
            )
        )
        header = struct.calcsize("<8sIQI")
        return struct.pack("<8sIQI", MAGIC, FORMAT_VERSION, header + len(body), zlib.crc32(body)) + body


@dataclass
class _ImageStore:
    """Compiled kernels, each stored once however many plans launch it."""

    entries: list[bytes] = field(default_factory=list)
    positions: dict[tuple[str, bool], int] = field(default_factory=dict)

    def position(self, image: KernelImage, portable: bool) -> int:
        key = (image.content_hash, portable)
        if key not in self.positions:
            self.positions[key] = len(self.entries)
            self.entries.append(_image(image, portable))
        return self.positions[key]


def _image(image: KernelImage, portable: bool) -> bytes:
    code = image.ptx.encode("ascii") + b"\0" if portable else image.cubin  # the driver wants text to end with a zero
    return b"".join(
        (
            struct.pack("<HB", image.architecture, PTX if portable else CUBIN),
            _text(image.symbol),
            struct.pack("<HI", image.num_warps, image.shared_bytes),
            _list("B", image.parameters, lambda parameter: struct.pack("<B", PARAMETER_TYPES[parameter.type])),
            struct.pack("<I", len(code)),
            code,
        )
    )


def _variant(variant: Variant, buffers: Sequence[str], store: _ImageStore) -> bytes:
    return b"".join(
        (
            _list("B", variant.types, lambda name: struct.pack("<B", 0 if name is None else DTYPES[name])),
            _list("B", variant.sizes.items(), lambda item: _text(item[0]) + struct.pack("<q", item[1])),
            _list("B", variant.tactics, lambda tactic: _tactic(tactic, buffers, store)),
        )
    )


def _tactic(tactic: Tactic, buffers: Sequence[str], store: _ImageStore) -> bytes:
    return _list("B", tactic.plans, lambda compiled: _plan(compiled, buffers, store))


def _plan(compiled: CompiledPlan, buffers: Sequence[str], store: _ImageStore) -> bytes:
    plan = compiled.plan
    sizes = [elements * ELEMENT_BYTES[dtype] for elements, dtype in plan.workspace.values()]
    names = {name: (OPERAND, position) for position, name in enumerate(buffers)}
    names |= {name: (WORKSPACE, position) for position, name in enumerate(plan.workspace)}
    pairs = zip(plan.launches, compiled.images, strict=True)
    return b"".join(
        (
            _text(compiled.name),
            struct.pack("<HB", compiled.images[0].architecture, PTX if compiled.portable else CUBIN),
            _list("B", sizes, lambda size: struct.pack("<Q", size)),
            _list("B", pairs, lambda pair: _launch(*pair, names, store.position(pair[1], compiled.portable))),
        )
    )


def _launch(launch: Launch, image: KernelImage, names: Mapping[str, tuple[int, int]], position: int) -> bytes:
    def argument(name: str, source: str) -> bytes:
        if source == "scratch":
            return struct.pack("<B", NULL)
        value = launch.arguments[name]
        if isinstance(value, Buffer):
            return struct.pack("<BB", *names[value.name])
        if isinstance(value, float):
            return struct.pack("<Bf", FLOAT32, value)
        return struct.pack("<Bi", INT32, value)

    head = struct.pack("<II", position, launch.programs_per_image)
    return head + _list("B", image.parameters, lambda parameter: argument(parameter.name, parameter.source))


def _attribute(name: str, value: int | float) -> bytes:
    kind, packed = ("f", struct.pack("<f", value)) if isinstance(value, float) else ("i", struct.pack("<i", value))
    return _text(name) + kind.encode() + packed


def _text(text: str) -> bytes:
    return struct.pack("<B", len(text)) + text.encode("ascii")


_Entry = TypeVar("_Entry")


def _list(count: str, entries: Iterable[_Entry], write: Callable[[_Entry], bytes]) -> bytes:
    written = [write(entry) for entry in entries]
    return struct.pack(f"<{count}", len(written)) + b"".join(written)
