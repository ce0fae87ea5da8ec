"""The ONNX model that stands for an engine: one EPContext node, whose execution provider loads the engine beside it.

The node and its attributes are ONNX Runtime's (domain com.microsoft); `source` names the provider that may take it.
"""

import onnx
from onnx import TensorProto, helper

from gaussport.export.bundle.engines import ENGINE_FILE, EngineRecord
from gaussport.export.bundle.manifest import MODEL_FILE, Manifest, TensorSpec
from gaussport.export.model_file import serialize

PROVIDERS = {"tensorrt": "TensorrtExecutionProvider", "tensorrt-rtx": "NvTensorRTRTXExecutionProvider"}
_TYPES = {
    "float32": TensorProto.FLOAT,
    "float16": TensorProto.FLOAT16,
    "bfloat16": TensorProto.BFLOAT16,
    "int64": TensorProto.INT64,
    "int32": TensorProto.INT32,
    "bool": TensorProto.BOOL,
}


def context_model(manifest: Manifest, record: EngineRecord) -> bytes:
    """The model file of an engine: the bundle's inputs and output, and the engine's name, relative to this file."""
    node = helper.make_node(
        "EPContext",
        [spec.name for spec in manifest.inputs],
        [manifest.output.name],
        name=record.name,
        domain="com.microsoft",
        main_context=1,
        embed_mode=0,
        ep_cache_context=ENGINE_FILE,
        source=PROVIDERS[record.builder],
        ep_sdk_version=record.builder_version,
        hardware_architecture=str(record.architecture),
        partition_name=record.name,
        onnx_model_filename=MODEL_FILE,
    )
    graph = helper.make_graph([node], manifest.name, [_value(spec) for spec in manifest.inputs], [_value(manifest.output)])
    opsets = [helper.make_opsetid("", manifest.opset), helper.make_opsetid("com.microsoft", 1)]
    return serialize(helper.make_model(graph, opset_imports=opsets, ir_version=10, producer_name="gaussport"))


def _value(spec: TensorSpec) -> onnx.ValueInfoProto:
    return helper.make_tensor_value_info(spec.name, _TYPES[spec.dtype], list(spec.shape))
