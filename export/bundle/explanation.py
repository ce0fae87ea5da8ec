"""What `explain.onnx` is and says of its outputs, as its writer and its readers agree on it. Free of onnx.

It is the part that is appended to `model.onnx`: the bytes of both, one behind the other, are one ONNX model whose graph has
further nodes and outputs. Its metadata have, under `METADATA_KEY`, JSON:

    {"model_sha256", "layers": [{"name", "operator", "grid", "attributes", "outputs"}]}

The hash is that of the `model.onnx` that it belongs to. The output `outputs[i]` of a layer is the graph's `NAME/OUTPUT`.
"""

METADATA_KEY = "gaussport.explanation"
