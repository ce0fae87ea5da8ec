"""`gaussport::SeparableGaussianFilter` in ONNX: the node that torch's export writes, and its body in standard operators.

The body is two batched MatMuls over Gaussians that are 1 at the nearest cell. Exponents are then never positive and sums
never below 1, so Exp and ReduceSum replace Softmax, which ONNX Runtime runs half as fast on rows this short. A fixed field
(b = h = w = 1) broadcasts into the MatMuls without being expanded. Numerics are those of `torch_op`.
"""

import onnx
import onnx.parser

from gaussport.plugins.onnx_node import OnnxOperator, Shapes, node_writer
from gaussport.plugins.operator import DOMAIN
from gaussport.plugins.separable_gaussian_filter.schema import OPERATOR
from gaussport.plugins.separable_gaussian_filter.torch_op import LEAST_LOG, LEAST_VARIANCE, separable_gaussian_filter

_BODY = """
<domain: "{domain}", opset_import: ["" : {opset}]>
{name} (value, offset, width, weight) => (output)
{{
  float_value = Cast <to = 1> (value)
  float_offset = Cast <to = 1> (offset)
  float_width = Cast <to = 1> (width)
  float_weight = Cast <to = 1> (weight)
{sizes}
  keep = Constant <value = int64[3] {{0, 0, 0}}> ()
  rest = Constant <value = int64[1] {{-1}}> ()
  last = Constant <value = int64[1] {{-1}}> ()
  axes = Constant <value = int64[2] {{1, 2}}> ()
  zero = Constant <value = int64 {{0}}> ()
  one = Constant <value = int64 {{1}}> ()
  none = Constant <value = float {{0.0}}> ()
  minus_half = Constant <value = float {{-0.5}}> ()
  least = Constant <value = float {{{least}}}> ()
  least_log = Constant <value = float {{{least_log}}}> ()
  square = Mul (float_width, float_width)
  safe = Max (square, least)
  factor = Div (minus_half, safe)
  row_factor_flat, col_factor_flat = Split <axis = -1, num_outputs = 2> (factor)
  row_mu_flat, col_mu_flat = Split <axis = -1, num_outputs = 2> (float_offset)
{row}
{col}
  row_share = Reciprocal (row_total)
  row_filter = Mul (row_gauss, row_share)
  row_shape = Concat <axis = 0> (keep, rest, H)
  row_matrix = Reshape (row_filter, row_shape)
  value_t = Transpose <perm = [0, 2, 3, 1, 4]> (float_value)
  row_pass = MatMul (row_matrix, value_t)
  row_pass_shape = Concat <axis = 0> (keep, H, R, D)
  row_pass_split = Reshape (row_pass, row_pass_shape)
  filtered_t = Transpose <perm = [0, 3, 2, 4, 1, 5]> (row_pass_split)
  filtered_shape = Concat <axis = 0> (keep, rest, D)
  filtered = Reshape (filtered_t, filtered_shape)

  weight_t = Transpose <perm = [0, 1, 3, 2, 4]> (float_weight)
  weight_column = Unsqueeze (weight_t, last)
  col_share = Div (weight_column, col_total)
  col_weighted = Mul (col_gauss, col_share)
  col_shape = Concat <axis = 0> (keep, W, rest)
  col_matrix = Reshape (col_weighted, col_shape)
  col_pass = MatMul (col_matrix, filtered)
  float_output = Transpose <perm = [0, 1, 3, 2, 4]> (col_pass)
  output = CastLike (float_output, value)
}}
"""

# One direction's unnormalised Gaussian, 1 at the nearest cell, and its sum over the last axis, which runs over cells.
_GAUSS = """
  {axis}_mu = Transpose <perm = {perm}> ({axis}_mu_flat)
  {axis}_factor = Transpose <perm = {perm}> ({axis}_factor_flat)
  {axis}_size = Squeeze ({size})
  {axis}_int = Range (zero, {axis}_size, one)
  {axis}_cells = Cast <to = 1> ({axis}_int)
  {axis}_query = Unsqueeze ({axis}_cells, axes)
  {axis}_size_less = Sub ({axis}_size, one)
  {axis}_end = Cast <to = 1> ({axis}_size_less)
  {axis}_centre = Sub ({axis}_query, {axis}_mu)
  {axis}_round = Round ({axis}_centre)
  {axis}_nearest = Clip ({axis}_round, none, {axis}_end)
  {axis}_from = Sub ({axis}_query, {axis}_nearest)
  {axis}_excess = Sub ({axis}_from, {axis}_mu)
  {axis}_twice = Add ({axis}_excess, {axis}_excess)
  {axis}_step = Sub ({axis}_nearest, {axis}_cells)
  {axis}_sum = Add ({axis}_step, {axis}_twice)
  {axis}_product = Mul ({axis}_step, {axis}_sum)
  {axis}_scaled = Mul ({axis}_product, {axis}_factor)
  {axis}_log = Max ({axis}_scaled, least_log)
  {axis}_gauss = Exp ({axis}_log)
  {axis}_total = ReduceSum <keepdims = 1> ({axis}_gauss, last)
"""


_SIZES = {"H": ("value", 1), "W": ("value", 2), "D": ("value", 4), "R": ("weight", 4)}  # operand and axis of each


def variant(node: onnx.NodeProto, shapes: Shapes) -> str:
    """`HxWxDxR` where the model fixes these sizes, e.g. `14x14x64x4`; `""` where one is dynamic.

    Sizes written into the body let ONNX Runtime fold all that follows from them, for a fixed field the filters themselves.
    """
    axes = {operand.name: shapes.get(name) for operand, name in zip(OPERATOR.operands, node.input, strict=True)}
    sizes = [None if (shape := axes[name]) is None else shape[axis] for name, axis in _SIZES.values()]
    return "x".join(map(str, sizes)) if None not in sizes else ""


def function(opset: int, variant: str) -> onnx.FunctionProto:
    """The body of one variant as a model-local function for a model of that opset.

    [B, H, W, P, D] is seen as [B, W, P, H, D] by the row pass and as [B, H, P, R·W, D] by the column pass.
    """
    if variant:
        lines = [f"  {x} = Constant <value = int64[1] {{{n}}}> ()" for x, n in zip(_SIZES, variant.split("x"), strict=True)]
    else:
        lines = [f"  {x} = Shape <start = {axis}, end = {axis + 1}> ({name})" for x, (name, axis) in _SIZES.items()]
    row = _GAUSS.format(axis="row", size="H", perm=[0, 2, 3, 1, 4, 5])  # [b, w, P, H, R, cell]
    col = _GAUSS.format(axis="col", size="W", perm=[0, 1, 3, 2, 4, 5])  # [b, h, P, W, R, cell]
    names = {"domain": DOMAIN, "name": OPERATOR.name, "opset": opset, "least": LEAST_VARIANCE, "least_log": LEAST_LOG}
    return onnx.parser.parse_function(_BODY.format(sizes="\n".join(lines), row=row, col=col, **names))


def _node(value: object, offset: object, width: object, weight: object) -> object:
    return node_writer(OPERATOR)(value, offset, width, weight)


ONNX = OnnxOperator(OPERATOR, separable_gaussian_filter, _node, variant, function)
