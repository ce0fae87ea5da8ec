"""`explain.onnx`: the model's graph with what its attention looked at as further outputs, and without weights of its own."""
