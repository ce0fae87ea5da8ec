"""How a batch reaches a session and its answer comes back: directly on the CPU, through page-locked memory to a GPU.

With CUDA graphs the launches of a batch size are recorded with the addresses of their tensors; so each size has tensors
of its own that stay where they are.
"""

import ctypes
from collections.abc import Sequence
from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray

from gaussport.gpu import DRIVER_LIBRARY
from gaussport.onnx_runtime import onnxruntime

Rows = NDArray[np.generic]

_GRAPH_ID = ("gpu_graph_id", "cuda_graph_annotation_id")  # the name in ONNX Runtime's providers, and in NVIDIA's


class Binding(Protocol):
    """Runs one batch. `rows` has the session's own type."""

    def run(self, rows: Rows) -> Rows: ...


class Direct:
    """The session's own arrays, for the CPU."""

    def __init__(self, session: onnxruntime.InferenceSession, feed: str, fetch: str) -> None:
        self._session, self._feed, self._fetch = session, feed, [fetch]

    def run(self, rows: Rows) -> Rows:
        return np.asarray(self._session.run(self._fetch, {self._feed: rows})[0])


class Staged:
    """Rows go through one page-locked buffer, which the GPU reads without the driver copying them first."""

    def __init__(self, session: onnxruntime.InferenceSession, feed: str, fetch: str) -> None:
        self._session, self._feed, self._fetch = session, feed, fetch
        self._staging = PageLocked()

    def run(self, rows: Rows) -> Rows:
        binding = self._session.io_binding()
        binding.bind_cpu_input(self._feed, self._staging.filled(rows))
        binding.bind_output(self._fetch, "cpu")
        self._session.run_with_iobinding(binding)
        return np.asarray(binding.get_outputs()[0].numpy())


class Graphed:
    """Every batch size that was seen has its own input and output on the device, and its own recorded graph."""

    def __init__(
        self, session: onnxruntime.InferenceSession, feed: str, fetch: str, columns: Sequence[int], device: tuple[str, int]
    ) -> None:
        self._session, self._feed, self._fetch = session, feed, fetch
        self._columns, self._device = tuple(columns), device
        self._staging = PageLocked()
        self._bound: dict[int, tuple[Any, Any, Any, Any]] = {}

    def run(self, rows: Rows) -> Rows:
        size = len(rows)
        if size not in self._bound:
            self._bound[size] = self._bind(rows)
        binding, inputs, outputs, options = self._bound[size]
        inputs.update_inplace(self._staging.filled(rows))
        self._session.run_with_iobinding(binding, options)
        return np.array(outputs.numpy())  # a copy: the next batch of this size writes to the same memory

    def _bind(self, rows: Rows) -> tuple[Any, Any, Any, Any]:
        create, (kind, index) = onnxruntime.OrtValue.ortvalue_from_shape_and_type, self._device
        inputs = create(rows.shape, rows.dtype, kind, index)
        outputs = create((len(rows), *self._columns), rows.dtype, kind, index)
        binding = self._session.io_binding()
        binding.bind_ortvalue_input(self._feed, inputs)
        binding.bind_ortvalue_output(self._fetch, outputs)
        options = onnxruntime.RunOptions()
        for name in _GRAPH_ID:
            options.add_run_config_entry(name, str(len(rows)))
        return binding, inputs, outputs, options


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
