"""`explain.onnx`: what is added to the model's graph so that it also tells what its attention looked at."""
