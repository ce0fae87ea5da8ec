"""How a batch reaches a session and its answer comes back: directly on the CPU, through page-locked memory to a GPU.

With CUDA graphs the launches of a batch size are recorded with the addresses of their tensors; so each size has tensors
of its own that stay where they are.
"""

import ctypes
from collections import defaultdict
from collections.abc import Mapping, Sequence
from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray

from gaussport.gpu import DRIVER_LIBRARY
from gaussport.onnx_runtime import onnxruntime
from gaussport.serving.rows import Rows

_GRAPH_ID = ("gpu_graph_id", "cuda_graph_annotation_id")  # the name in ONNX Runtime's providers, and in NVIDIA's


class Binding(Protocol):
    """Runs one batch. `inputs` are by the session's names and of its own types."""

    def run(self, inputs: Mapping[str, Rows]) -> Rows: ...


class Direct:
    """The session's own arrays, for the CPU."""

    def __init__(self, session: onnxruntime.InferenceSession, fetch: str) -> None:
        self._session, self._fetch = session, [fetch]

    def run(self, inputs: Mapping[str, Rows]) -> Rows:
        return np.asarray(self._session.run(self._fetch, inputs)[0])


class Staged:
    """Each input goes through a page-locked buffer, which the GPU reads without the driver copying it first."""

    def __init__(self, session: onnxruntime.InferenceSession, fetch: str) -> None:
        self._session, self._fetch = session, fetch
        self._staging: defaultdict[str, PageLocked] = defaultdict(PageLocked)

    def run(self, inputs: Mapping[str, Rows]) -> Rows:
        binding = self._session.io_binding()
        for name, rows in inputs.items():
            binding.bind_cpu_input(name, self._staging[name].filled(rows))
        binding.bind_output(self._fetch, "cpu")
        self._session.run_with_iobinding(binding)
        return np.asarray(binding.get_outputs()[0].numpy())


class Graphed:
    """Every batch size that was seen has its own inputs and output on the device, and its own recorded graph."""

    def __init__(
        self, session: onnxruntime.InferenceSession, fetch: str, columns: Sequence[int], device: tuple[str, int]
    ) -> None:
        self._session, self._fetch = session, fetch
        self._columns, self._device = tuple(columns), device
        self._staging: defaultdict[str, PageLocked] = defaultdict(PageLocked)
        self._bound: dict[int, tuple[Any, dict[str, Any], Any, Any]] = {}

    def run(self, inputs: Mapping[str, Rows]) -> Rows:
        first = next(iter(inputs.values()))
        size = len(first)
        if size not in self._bound:
            self._bound[size] = self._bind(inputs, size, first.dtype)
        binding, there, outputs, options = self._bound[size]
        for name, rows in inputs.items():
            there[name].update_inplace(self._staging[name].filled(rows))
        self._session.run_with_iobinding(binding, options)
        return np.array(outputs.numpy())  # a copy: the next batch of this size writes to the same memory

    def _bind(self, inputs: Mapping[str, Rows], size: int, dtype: Any) -> tuple[Any, dict[str, Any], Any, Any]:
        create, (kind, index) = onnxruntime.OrtValue.ortvalue_from_shape_and_type, self._device
        there = {name: create(rows.shape, rows.dtype, kind, index) for name, rows in inputs.items()}
        outputs = create((size, *self._columns), dtype, kind, index)  # logits are of the pictures' type
        binding = self._session.io_binding()
        for name, value in there.items():
            binding.bind_ortvalue_input(name, value)
        binding.bind_ortvalue_output(self._fetch, outputs)
        options = onnxruntime.RunOptions()
        for name in _GRAPH_ID:
            options.add_run_config_entry(name, str(size))
        return binding, there, outputs, options


class PageLocked:
    """A buffer that grows to the largest batch, locked in memory by the driver where there is one.

    Without the lock everything works, more slowly: the driver then copies the rows once more.
    """

    def __init__(self, library: str = DRIVER_LIBRARY) -> None:
        self._buffer: NDArray[np.uint8] = np.empty(0, dtype=np.uint8)
        self._locked = False
        try:
            self._cuda: ctypes.CDLL | None = ctypes.CDLL(library)
        except OSError:
            self._cuda = None

    @property
    def locked(self) -> bool:
        return self._locked

    def filled(self, rows: Rows) -> Rows:
        """The rows, copied into the buffer; valid until the next call."""
        if rows.nbytes > self._buffer.nbytes:
            self._release()
            self._buffer = np.empty(rows.nbytes, dtype=np.uint8)
            self._lock()
        view = self._buffer[: rows.nbytes].view(rows.dtype).reshape(rows.shape)
        view[...] = rows
        return view

    def _lock(self) -> None:
        if self._cuda is not None:
            address, size = ctypes.c_void_p(self._buffer.ctypes.data), ctypes.c_size_t(self._buffer.nbytes)
            self._locked = self._cuda.cuMemHostRegister_v2(address, size, 0) == 0

    def _release(self) -> None:
        if self._locked and self._cuda is not None:
            self._cuda.cuMemHostUnregister(ctypes.c_void_p(self._buffer.ctypes.data))
        self._locked = False

    def __del__(self) -> None:
        self._release()
