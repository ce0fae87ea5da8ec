"""ONNX Runtime with its telemetry off: `from gaussport.onnx_runtime import onnxruntime`, everywhere.

Since 1.29 its Linux builds send the names and hashes of models to their maker unless this variable is set before the
first import. Whoever wants that can set the variable to something else.
"""

import os

os.environ.setdefault("ORT_DISABLE_TELEMETRY", "1")

import onnxruntime  # noqa: TID251

__all__ = ["onnxruntime"]
