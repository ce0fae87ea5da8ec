"""`gaussport::SeparableGaussianFilter` in ONNX: the node that torch's export writes, and its body in standard operators.

The body is two batched MatMuls over filters made by softmax. A fixed field (b = h = w = 1) broadcasts into them without
being expanded. Numerics are those of `torch_op`: distances are counted from the nearest cell, so nothing cancels.
"""

import onnx
import onnx.parser

from gaussport.plugins.onnx_node import OnnxOperator, node_writer
from gaussport.plugins.operator import DOMAIN
from gaussport.plugins.separable_gaussian_filter.schema import OPERATOR
from gaussport.plugins.separable_gaussian_filter.torch_op import separable_gaussian_filter

_BODY = """
<domain: "{domain}", opset_import: ["" : {opset}]>
{name} (value, offset, width, weight) => (output)
{{
  float_value = Cast <to = 1> (value)
  float_offset = Cast <to = 1> (offset)
  float_width = Cast <to = 1> (width)
  float_weight = Cast <to = 1> (weight)
  row_mu, col_mu = Split <axis = -1, num_outputs = 2> (float_offset)
  row_sigma, col_sigma = Split <axis = -1, num_outputs = 2> (float_width)
  H = Shape <start = 1, end = 2> (value)
  W = Shape <start = 2, end = 3> (value)
  D = Shape <start = 4, end = 5> (value)
  R = Shape <start = 4, end = 5> (weight)
  keep = Constant <value = int64[3] {{0, 0, 0}}> ()
  rest = Constant <value = int64[1] {{-1}}> ()
  zero = Constant <value = int64 {{0}}> ()
  one = Constant <value = int64 {{1}}> ()
  axes = Constant <value = int64[2] {{1, 2}}> ()
  none = Constant <value = float {{0.0}}> ()
  two = Constant <value = float {{2.0}}> ()
  minus_half = Constant <value = float {{-0.5}}> ()
  least = Constant <value = float {{1e-36}}> ()

  H_scalar = Squeeze (H)
  rows_int = Range (zero, H_scalar, one)
  rows = Cast <to = 1> (rows_int)
  row_query = Unsqueeze (rows, axes)
  H_less = Sub (H_scalar, one)
  last_row = Cast <to = 1> (H_less)
  row_mu_t = Transpose <perm = [0, 2, 3, 1, 4, 5]> (row_mu)
  row_sigma_t = Transpose <perm = [0, 2, 3, 1, 4, 5]> (row_sigma)
  row_centre = Sub (row_query, row_mu_t)
  row_round = Round (row_centre)
  row_nearest = Clip (row_round, none, last_row)
  row_from = Sub (row_query, row_nearest)
  row_excess = Sub (row_from, row_mu_t)
  row_twice = Mul (row_excess, two)
  row_square = Mul (row_sigma_t, row_sigma_t)
  row_safe = Max (row_square, least)
  row_factor = Div (minus_half, row_safe)
  row_step = Sub (row_nearest, rows)
  row_sum = Add (row_step, row_twice)
  row_product = Mul (row_step, row_sum)
  row_log = Mul (row_product, row_factor)
  row_filter = Softmax <axis = -1> (row_log)
  row_shape = Concat <axis = 0> (keep, rest, H)
  row_matrix = Reshape (row_filter, row_shape)
  value_t = Transpose <perm = [0, 2, 3, 1, 4]> (float_value)
  row_pass = MatMul (row_matrix, value_t)
  row_pass_shape = Concat <axis = 0> (keep, H, R, D)
  row_pass_split = Reshape (row_pass, row_pass_shape)
  filtered_t = Transpose <perm = [0, 3, 2, 4, 1, 5]> (row_pass_split)
  filtered_shape = Concat <axis = 0> (keep, rest, D)
  filtered = Reshape (filtered_t, filtered_shape)

  W_scalar = Squeeze (W)
  cols_int = Range (zero, W_scalar, one)
  cols = Cast <to = 1> (cols_int)
  col_query = Unsqueeze (cols, axes)
  W_less = Sub (W_scalar, one)
  last_col = Cast <to = 1> (W_less)
  col_mu_t = Transpose <perm = [0, 1, 3, 2, 4, 5]> (col_mu)
  col_sigma_t = Transpose <perm = [0, 1, 3, 2, 4, 5]> (col_sigma)
  col_centre = Sub (col_query, col_mu_t)
  col_round = Round (col_centre)
  col_nearest = Clip (col_round, none, last_col)
  col_from = Sub (col_query, col_nearest)
  col_excess = Sub (col_from, col_mu_t)
  col_twice = Mul (col_excess, two)
  col_square = Mul (col_sigma_t, col_sigma_t)
  col_safe = Max (col_square, least)
  col_factor = Div (minus_half, col_safe)
  col_step = Sub (col_nearest, cols)
  col_sum = Add (col_step, col_twice)
  col_product = Mul (col_step, col_sum)
  col_log = Mul (col_product, col_factor)
  col_filter = Softmax <axis = -1> (col_log)
  weight_t = Transpose <perm = [0, 1, 3, 2, 4]> (float_weight)
  weight_column = Unsqueeze (weight_t, rest)
  col_weighted = Mul (col_filter, weight_column)
  weighted_shape = Concat <axis = 0> (keep, W, rest)
  col_matrix = Reshape (col_weighted, weighted_shape)
  col_pass = MatMul (col_matrix, filtered)
  float_output = Transpose <perm = [0, 1, 3, 2, 4]> (col_pass)
  output = CastLike (float_output, value)
}}
"""


def variant(node: onnx.NodeProto) -> str:
    """One body serves every node."""
    return ""


def function(opset: int, variant: str) -> onnx.FunctionProto:
    """The body as a model-local function for a model of that opset.

    [B, H, W, P, D] is seen as [B, W, P, H, D] by the row pass and as [B, H, P, R·W, D] by the column pass.
    """
    return onnx.parser.parse_function(_BODY.format(domain=DOMAIN, name=OPERATOR.name, opset=opset))


def _node(value: object, offset: object, width: object, weight: object) -> object:
    return node_writer(OPERATOR)(value, offset, width, weight)


ONNX = OnnxOperator(OPERATOR, separable_gaussian_filter, _node, variant, function)
