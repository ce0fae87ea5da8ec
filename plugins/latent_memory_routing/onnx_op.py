"""`gaussport::LatentMemoryRouting` in ONNX: the node that torch's export writes, and its bodies in standard operators.

Tokens run along the last axis from the scores on: [B, P, K, N]. Softmax over components is then made of whole-array steps
that ONNX Runtime vectorises along tokens, and the products with the memory need no transpose of their own. Exponents end at
`LEAST_LOG`, so that no responsibility becomes a subnormal number, with which products take tens of times as long. Otherwise
numerics are those of `torch_op`: shifted, expanded squares in one MatMul, and for causal order a chunked scan over [V, 1]
whose running memory is an exclusive CumSum. A function body cannot ask whether it was given key_mask, so there is one body
per variant: with or without mask, causal or not.
"""

import onnx
import onnx.parser

from gaussport.plugins.latent_memory_routing.memory_product import CHUNK
from gaussport.plugins.latent_memory_routing.schema import OPERATOR
from gaussport.plugins.latent_memory_routing.torch_op import latent_memory_routing
from gaussport.plugins.onnx_node import OnnxOperator, Shapes, node_writer
from gaussport.plugins.operator import DOMAIN

LEAST_LOG = -60.0
"""exp(−60) is 2⁻⁸⁶ of a token's largest responsibility."""

_BODY = """
<domain: "{domain}", opset_import: ["" : {opset}]>
{name} <epsilon: float = 1e-06, causal: int = 0>
({inputs}) => (output)
{{
  float_query = Cast <to = 1> (query)
  float_key = Cast <to = 1> (key)
  float_value = Cast <to = 1> (value)
  float_mean = Cast <to = 1> (mean)
  float_variance = Cast <to = 1> (variance)
  float_prior = Cast <to = 1> (log_prior)
  epsilon = Constant <value_float: float = @epsilon> ()
  half = Constant <value = float {{0.5}}> ()
  minus_half = Constant <value = float {{-0.5}}> ()
  two_pi = Constant <value = float {{6.283185307179586}}> ()
  least_log = Constant <value = float {{{least_log}}}> ()
  zero_1 = Constant <value = int64[1] {{0}}> ()
  last = Constant <value = int64[1] {{-1}}> ()
  second = Constant <value = int64[1] {{1}}> ()
  third = Constant <value = int64[1] {{2}}> ()

  centre = ReduceMean <keepdims = 1> (float_mean, second)
  shifted_mean = Sub (float_mean, centre)
  precision = Reciprocal (float_variance)
  mean_square = Mul (shifted_mean, shifted_mean)
  mean_scaled = Mul (mean_square, precision)
  volume = Mul (float_variance, two_pi)
  log_volume = Log (volume)
  per_axis = Add (log_volume, mean_scaled)
  summed = ReduceSum <keepdims = 1> (per_axis, last)
  halved = Mul (summed, half)
  prior_column = Unsqueeze (float_prior, last)
  constant_weight = Sub (prior_column, halved)
  square_weight = Mul (precision, minus_half)
  line_weight = Mul (shifted_mean, precision)
  weight_all = Concat <axis = -1> (square_weight, line_weight, constant_weight)
  weight_common = ReduceMean <keepdims = 1> (weight_all, second)
  weight = Sub (weight_all, weight_common)

  P = Shape <start = 2, end = 3> (value)
  width = Shape <start = 2, end = 3> (weight)
  column = Constant <value = int64[2] {{-1, 1}}> ()
  centre_column = Reshape (centre, column)
  channels_shape = Constant <value = int64[3] {{0, 0, -1}}> ()
  heads_shape = Concat <axis = 0> (zero_1, P, last)
  features_shape = Concat <axis = 0> (zero_1, P, width, last)
  B_and_N = Shape <start = 0, end = 2> (value)
  B, N = Split <num_outputs = 2> (B_and_N)
  ones_shape = Concat <axis = 0> (B, P, N)
  ones = ConstantOfShape <value = float[1] {{1.0}}> (ones_shape)
{query}
{key}
{mask}
  written = Mul (key_gauss, key_share)

  value_t = Transpose <perm = [0, 2, 1, 3]> (float_value)
{product}
  like = CastLike (output_t, value)
  output = Transpose <perm = [0, 2, 1, 3]> (like)
}}
"""

# Γ of query or key is gauss / total, [B, P, K, N] / [B, P, 1, N]; features are [x², x, 1] of the shifted x, head by head.
_SCORE = """
  {x}_channels = Reshape (float_{x}, channels_shape)
  {x}_t = Transpose <perm = [0, 2, 1]> ({x}_channels)
  {x}_shifted = Sub ({x}_t, centre_column)
  {x}_square = Mul ({x}_shifted, {x}_shifted)
  {x}_lines = Reshape ({x}_shifted, heads_shape)
  {x}_squares = Reshape ({x}_square, heads_shape)
  {x}_joined = Concat <axis = 2> ({x}_squares, {x}_lines, ones)
  {x}_features = Reshape ({x}_joined, features_shape)
  {x}_score = MatMul (weight, {x}_features)
  {x}_peak = ReduceMax <keepdims = 1> ({x}_score, third)
  {x}_below = Sub ({x}_score, {x}_peak)
  {x}_log = Clip ({x}_below, least_log)
  {x}_gauss = Exp ({x}_log)
  {x}_total = ReduceSum <keepdims = 1> ({x}_gauss, third)
"""

_UNMASKED = """
  key_share = Reciprocal (key_total)
"""

_MASKED = """
  mask_float = Cast <to = 1> (key_mask)
  mask_axes = Constant <value = int64[2] {{1, 2}}> ()
  mask_row = Unsqueeze (mask_float, mask_axes)
  key_share = Div (mask_row, key_total)
"""

# Γ_Q = gauss / total would be divided by d + ε next; gauss alone, divided by Σ gauss·Z + ε·total, is the same.
_BIDIRECTIONAL = """
  memory = MatMul (written, value_t)
  slot_mass = ReduceSum <keepdims = 1> (written, last)
  slot_row = Transpose <perm = [0, 1, 3, 2]> (slot_mass)
  mass = MatMul (slot_row, query_gauss)
  least_mass = Mul (query_total, epsilon)
  safe_mass = Add (mass, least_mass)
  query_share = Reciprocal (safe_mass)
  read = Mul (query_gauss, query_share)
  read_t = Transpose <perm = [0, 1, 3, 2]> (read)
  output_t = MatMul (read_t, memory)
"""

_CAUSAL = """
  chunk = Constant <value = int64[1] {{{chunk}}}> ()
  negative = Neg (N)
  missing = Mod (negative, chunk)
  no_padding = Constant <value = int64[7] {{0, 0, 0, 0, 0, 0, 0}}> ()
  row_pads = Concat <axis = 0> (no_padding, missing)
  six_zeros = Constant <value = int64[6] {{0, 0, 0, 0, 0, 0}}> ()
  column_pads = Concat <axis = 0> (six_zeros, missing, zero_1)
  K = Shape <start = 1, end = 2> (mean)
  rows_shape = Concat <axis = 0> (zero_1, zero_1, K, last, chunk)
  query_share = Reciprocal (query_total)
  read = Mul (query_gauss, query_share)
  read_padded = Pad (read, row_pads)
  read_split = Reshape (read_padded, rows_shape)
  read_chunks = Transpose <perm = [0, 1, 3, 4, 2]> (read_split)
  written_padded = Pad (written, row_pads)
  written_split = Reshape (written_padded, rows_shape)
  written_chunks = Transpose <perm = [0, 1, 3, 2, 4]> (written_split)

  ones_column = Unsqueeze (ones, last)
  extended = Concat <axis = -1> (value_t, ones_column)
  value_padded = Pad (extended, column_pads)
  extended_width = Shape <start = 3, end = 4> (extended)
  columns_shape = Concat <axis = 0> (zero_1, zero_1, last, chunk, extended_width)
  value_chunks = Reshape (value_padded, columns_shape)

  states = MatMul (written_chunks, value_chunks)
  chunk_axis = Squeeze (third)
  before = CumSum <exclusive = 1> (states, chunk_axis)
  affinity_all = MatMul (read_chunks, written_chunks)
  affinity = Trilu <upper = 0> (affinity_all)
  from_before = MatMul (read_chunks, before)
  from_chunk = MatMul (affinity, value_chunks)
  chunks_out = Add (from_before, from_chunk)
  joined_shape = Concat <axis = 0> (zero_1, zero_1, last, extended_width)
  product_padded = Reshape (chunks_out, joined_shape)
  product = Slice (product_padded, zero_1, N, third)
  value_width = Shape <start = 3, end = 4> (value)
  sizes = Concat <axis = 0> (value_width, second)
  numerator, mass = Split <axis = -1> (product, sizes)
  safe_mass = Add (mass, epsilon)
  output_t = Div (numerator, safe_mass)
"""


def variant(node: onnx.NodeProto, shapes: Shapes) -> str:
    """Which body a node needs: `""`, `masked`, `causal` or `causal_masked`."""
    causal = any(attribute.name == "causal" and attribute.i for attribute in node.attribute)
    masked = len(node.input) == len(OPERATOR.operands) and node.input[-1] != ""
    return "_".join(word for word, present in (("causal", causal), ("masked", masked)) if present)


def function(opset: int, variant: str) -> onnx.FunctionProto:
    """The body of one variant as a model-local function for a model of that opset."""
    words = variant.split("_")
    operands = OPERATOR.operands if "masked" in words else OPERATOR.operands[:-1]
    body = _BODY.format(
        domain=DOMAIN,
        name=OPERATOR.name,
        opset=opset,
        inputs=", ".join(operand.name for operand in operands),
        least_log=LEAST_LOG,
        query=_SCORE.format(x="query"),
        key=_SCORE.format(x="key"),
        mask=_MASKED.format() if "masked" in words else _UNMASKED.format(),
        product=_CAUSAL.format(chunk=CHUNK) if "causal" in words else _BIDIRECTIONAL.format(),
    )
    return onnx.parser.parse_function(body)


def _node(
    query: object,
    key: object,
    value: object,
    mean: object,
    variance: object,
    log_prior: object,
    key_mask: object = None,
    epsilon: float = 1e-6,
    causal: bool = False,
) -> object:
    operands = [query, key, value, mean, variance, log_prior]
    masked = [] if key_mask is None else [key_mask]
    return node_writer(OPERATOR)(*operands, *masked, epsilon=epsilon, causal=int(causal))


ONNX = OnnxOperator(OPERATOR, latent_memory_routing, _node, variant, function)
