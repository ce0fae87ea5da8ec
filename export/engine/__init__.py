"""From a bundle to a TensorRT engine inside it, for TensorRT 10.13 and later, 11, and TensorRT-RTX by one path.

    bundle ──wish──▶ passes (onnx-graphsurgeon) ──▶ worker process: parse ▸ check ▸ build ──▶ ep_context ──▶ bundle

TensorRT is imported in the worker process only: it may abort the process that it runs in, and then the command says so
instead of dying with it. What cannot be is refused before the worker starts.
"""
