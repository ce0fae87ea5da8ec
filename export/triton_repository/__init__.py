"""A bundle as a model of NVIDIA's Triton Inference Server, for those who run one already."""
