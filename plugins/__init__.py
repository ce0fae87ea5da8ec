"""The operators, one folder each: float64 definition, torch operator, ONNX function body, GPU kernels, TensorRT plugin.

This package and each operator's `schema` hold names and shapes only, so that anything may import them; what needs torch
or onnx is imported by its full name, e.g. `gaussport.plugins.separable_gaussian_filter.torch_op`.
"""

from gaussport.plugins.operator import DOMAIN, OPSET_VERSION, Operand, Operator
from gaussport.plugins.registry import operators

__all__ = ["DOMAIN", "OPSET_VERSION", "Operand", "Operator", "operators"]
