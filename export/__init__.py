"""From a module to a bundle: ONNX, graph passes, verification. `gaussport.export.bundle` alone is free of torch and onnx."""
