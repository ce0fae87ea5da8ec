"""The bundle: what export writes and serving reads. A directory, or one .zip of it, described by `bundle.json`.

Free of torch, onnx and onnxruntime, because the server imports it.
"""

from gaussport.export.bundle.manifest import SCHEMA_VERSION, FileRecord, Manifest, Provenance, TensorSpec

__all__ = ["SCHEMA_VERSION", "FileRecord", "Manifest", "Provenance", "TensorSpec"]
