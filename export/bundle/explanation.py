"""What `explain.onnx` says of its outputs, as its writer and its readers agree on it. Free of onnx.

The model's metadata have, under `METADATA_KEY`, JSON:

    {"model_sha256", "layers": [{"name", "operator", "grid", "attributes", "outputs"}]}

The hash is that of the `model.onnx` whose bytes its weights are. The output `outputs[i]` of a layer is the graph's
`NAME/OUTPUT`.
"""

METADATA_KEY = "gaussport.explanation"
