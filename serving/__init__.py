"""From a bundle to HTTP: runtime, batcher, image front door and the two protocol faces. Free of torch and onnx."""
