"""The Open Inference Protocol v2, as Triton, KServe and MLServer clients speak it."""
