"""The plugin library as TensorRT sees it, in Python: `harness.h` by ctypes."""

import ctypes
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import NamedTuple

DTYPES = {"fp32": 0, "fp16": 1, "i8": 2, "i32": 3, "i1": 4, "bf16": 7, "i64": 8}
"""nvinfer1::DataType by Triton's names."""

FLOAT32, INT8, INT32, CHAR = 1, 3, 5, 6
"""nvinfer1::PluginFieldType."""

LINEAR = 0
BUILD, RUNTIME = 0, 1
MOST = 8


class Tensor(NamedTuple):
    """A tensor's description: an axis of -1 is not known yet; `least` and `most` bound dynamic ones."""

    shape: tuple[int, ...]
    dtype: str
    least: tuple[int, ...] | None = None
    most: tuple[int, ...] | None = None
    format: int = LINEAR


class Field(NamedTuple):
    """A plugin field: its type and its bytes."""

    type: int
    data: bytes


class _Tensor(ctypes.Structure):
    _fields_ = [
        ("type", ctypes.c_int32), ("format", ctypes.c_int32), ("rank", ctypes.c_int32), ("padding", ctypes.c_int32),
        ("dims", ctypes.c_int64 * 8), ("min", ctypes.c_int64 * 8), ("max", ctypes.c_int64 * 8),
    ]  # fmt: skip


class _Field(ctypes.Structure):
    _fields_ = [
        ("name", ctypes.c_char_p), ("data", ctypes.c_void_p), ("type", ctypes.c_int32), ("length", ctypes.c_int32),
    ]  # fmt: skip


class PluginHost:
    """Loads the plugin library, lists its creators and makes plugins."""

    def __init__(self, harness: Path, library: Path) -> None:
        self.lib = ctypes.CDLL(str(harness))
        for name in ("TakeLog", "CreatorName", "CreatorVersion", "CreatorNamespace", "PluginName", "PluginMetadata"):
            getattr(self.lib, f"harness{name}").restype = ctypes.c_char_p
        for name in ("Create", "Clone", "Attach"):
            getattr(self.lib, f"harness{name}").restype = ctypes.c_void_p
        self.lib.harnessWorkspace.restype = ctypes.c_uint64
        self.count = self.lib.harnessLoad(str(library).encode())

    def take_log(self) -> list[str]:
        """Lines logged since the last call, each "severity message"; errors have severity 0 or 1."""
        return [str(line) for line in self.lib.harnessTakeLog().decode().splitlines()]

    def take_error(self) -> str:
        """The one error in the log."""
        errors = [line[2:] for line in self.take_log() if line[0] in "01"]
        assert len(errors) == 1, errors
        return errors[0]

    def creators(self) -> dict[tuple[str, str, str], dict[str, int]]:
        """Field types by field name, by (name, version, namespace) of the creator."""
        found = {}
        for creator in range(self.count):
            fields = (_Field * MOST)()
            count = self.lib.harnessCreatorFields(creator, fields, MOST)
            words = (
                getattr(self.lib, f"harnessCreator{part}")(creator).decode() for part in ("Name", "Version", "Namespace")
            )
            name, version, namespace = words
            found[name, version, namespace] = {field.name.decode(): field.type for field in fields[:count]}
        return found

    def create(self, operator: str, fields: Mapping[str, Field], phase: int = BUILD) -> "Plugin | None":
        """A plugin, or None with an error in the log."""
        names = [self.lib.harnessCreatorName(creator).decode() for creator in range(self.count)]
        kept = [
            (name.encode(), ctypes.create_string_buffer(field.data, len(field.data)), field)
            for name, field in fields.items()
        ]
        structures = (_Field * max(len(kept), 1))(
            *(_Field(name, ctypes.addressof(data), field.type, _length(field)) for name, data, field in kept)
        )
        address = self.lib.harnessCreate(names.index(operator), b"node", structures, len(kept), phase)
        return Plugin(self, address) if address else None


def _length(field: Field) -> int:
    return len(field.data) // (4 if field.type in (FLOAT32, INT32) else 1)


class Plugin:
    """One IPluginV3. Methods return what TensorRT would get; statuses of 0 are success."""

    def __init__(self, host: PluginHost, address: int) -> None:
        self.host = host
        self.address = ctypes.c_void_p(address)

    def close(self) -> None:
        self.host.lib.harnessDestroy(self.address)

    def clone(self) -> "Plugin":
        return Plugin(self.host, self.host.lib.harnessClone(self.address))

    def attach(self) -> "Plugin":
        """attachToContext."""
        return Plugin(self.host, self.host.lib.harnessAttach(self.address))

    def name(self) -> str:
        return str(self.host.lib.harnessPluginName(self.address).decode())

    def metadata(self) -> str:
        return str(self.host.lib.harnessPluginMetadata(self.address).decode())

    def output_type(self, dtypes: Sequence[str]) -> str | None:
        codes = (ctypes.c_int32 * len(dtypes))(*(DTYPES[dtype] for dtype in dtypes))
        found = ctypes.c_int32()
        if self.host.lib.harnessOutputType(self.address, codes, len(dtypes), ctypes.byref(found)):
            return None
        return next(name for name, code in DTYPES.items() if code == found.value)

    def output_shape(self, shapes: Sequence[tuple[int, ...]]) -> tuple[int, ...] | None:
        found = _Tensor()
        inputs = _tensors([Tensor(shape, "fp32") for shape in shapes])
        if self.host.lib.harnessOutputShape(self.address, inputs, len(shapes), ctypes.byref(found)):
            return None
        return tuple(found.dims[: found.rank])

    def supports_format(self, position: int, tensors: Sequence[Tensor]) -> bool:
        return bool(self.host.lib.harnessSupportsFormat(self.address, position, _tensors(tensors), len(tensors) - 1))

    def configure(self, tensors: Sequence[Tensor]) -> int:
        return int(self.host.lib.harnessConfigure(self.address, _tensors(tensors), len(tensors) - 1))

    def workspace_bytes(self, tensors: Sequence[Tensor]) -> int:
        return int(self.host.lib.harnessWorkspace(self.address, _tensors(tensors), len(tensors) - 1))

    def tactics(self) -> list[int]:
        found = (ctypes.c_int32 * MOST)()
        return list(found[: self.host.lib.harnessTactics(self.address, found, MOST)])

    def set_tactic(self, tactic: int) -> int:
        return int(self.host.lib.harnessSetTactic(self.address, tactic))

    def shape_change(self, tensors: Sequence[Tensor]) -> int:
        return int(self.host.lib.harnessShapeChange(self.address, _tensors(tensors), len(tensors) - 1))

    def enqueue(
        self, tensors: Sequence[Tensor], inputs: Sequence[int], output: int, workspace: int = 0, stream: int = 0
    ) -> int:
        """`inputs`, `output` and `workspace` are addresses."""
        pointers = (ctypes.c_void_p * len(inputs))(*inputs)
        return int(
            self.host.lib.harnessEnqueue(
                self.address,
                _tensors(tensors),
                len(inputs),
                pointers,
                ctypes.c_void_p(output),
                ctypes.c_void_p(workspace),
                ctypes.c_uint64(stream),
            )
        )

    def serialize(self) -> dict[str, Field]:
        """Copies of the fields to serialize."""
        fields = (_Field * MOST)()
        count = self.host.lib.harnessSerialize(self.address, fields, MOST)
        sizes = {FLOAT32: 4, INT32: 4}
        return {
            field.name.decode(): Field(field.type, ctypes.string_at(field.data, field.length * sizes.get(field.type, 1)))
            for field in fields[:count]
        }


def _tensors(tensors: Sequence[Tensor]) -> "ctypes.Array[_Tensor]":
    structures = (_Tensor * len(tensors))()
    for structure, tensor in zip(structures, tensors, strict=True):
        structure.type, structure.format, structure.rank = DTYPES[tensor.dtype], tensor.format, len(tensor.shape)
        for name, extents in (("dims", tensor.shape), ("min", tensor.least), ("max", tensor.most)):
            getattr(structure, name)[: len(tensor.shape)] = extents or tensor.shape
    return structures


def fields_of(attributes: Mapping[str, str | int | float]) -> dict[str, Field]:
    """Plugin fields as TensorRT's parser makes them of a node's attributes: texts end with a zero."""
    fields = {}
    for name, value in attributes.items():
        if name.startswith("plugin_"):
            continue
        if isinstance(value, str):
            fields[name] = Field(CHAR, value.encode() + b"\0")
        elif isinstance(value, float):
            fields[name] = Field(FLOAT32, bytes(ctypes.c_float(value)))
        else:
            fields[name] = Field(INT32, bytes(ctypes.c_int32(value)))
    return fields
