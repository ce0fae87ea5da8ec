"""`gaussport::LatentMemoryRouting` in ONNX: the node that torch's export writes, and its bodies in standard operators.

Numerics are those of `torch_op`: shifted, expanded squares in one MatMul, and for causal order a chunked scan over [V, 1]
whose running memory is an exclusive CumSum. A function body cannot ask
whether it was given key_mask, so there is one body per variant: with or without mask, causal or not.
"""

import onnx
import onnx.parser

from gaussport.plugins.latent_memory_routing.memory_product import CHUNK
from gaussport.plugins.latent_memory_routing.schema import OPERATOR
from gaussport.plugins.latent_memory_routing.torch_op import latent_memory_routing
from gaussport.plugins.onnx_node import OnnxOperator, Shapes, node_writer
from gaussport.plugins.operator import DOMAIN

_BODY = """
<domain: "{domain}", opset_import: ["" : {opset}]>
{name} <epsilon: float = 1e-06, causal: int = 0>
({inputs}) => (output)
{{
  float_mean = Cast <to = 1> (mean)
  float_variance = Cast <to = 1> (variance)
  float_prior = Cast <to = 1> (log_prior)
  one = Constant <value = float {{1.0}}> ()
  half = Constant <value = float {{0.5}}> ()
  minus_half = Constant <value = float {{-0.5}}> ()
  two_pi = Constant <value = float {{6.283185307179586}}> ()
  last = Constant <value = int64[1] {{-1}}> ()
  second = Constant <value = int64[1] {{1}}> ()

  centre = ReduceMean <keepdims = 1> (float_mean, second)
  shifted_mean = Sub (float_mean, centre)
  precision = Reciprocal (float_variance)
  mean_square = Mul (shifted_mean, shifted_mean)
  mean_scaled = Mul (mean_square, precision)
  volume = Mul (float_variance, two_pi)
  log_volume = Log (volume)
  per_axis = Add (log_volume, mean_scaled)
  summed = ReduceSum <keepdims = 0> (per_axis, last)
  halved = Mul (summed, half)
  constant = Sub (float_prior, halved)
  bias = Unsqueeze (constant, second)
  square_weight = Mul (precision, minus_half)
  line_weight = Mul (shifted_mean, precision)
  weight = Concat <axis = -1> (square_weight, line_weight)
  weight_t = Transpose <perm = [0, 2, 1]> (weight)

  float_query = Cast <to = 1> (query)
  query_t = Transpose <perm = [0, 2, 1, 3]> (float_query)
  query_shifted = Sub (query_t, centre)
  query_square = Mul (query_shifted, query_shifted)
  query_features = Concat <axis = -1> (query_square, query_shifted)
  query_product = MatMul (query_features, weight_t)
  query_score = Add (query_product, bias)
  read = Softmax <axis = -1> (query_score)

  float_key = Cast <to = 1> (key)
  key_t = Transpose <perm = [0, 2, 1, 3]> (float_key)
  key_shifted = Sub (key_t, centre)
  key_square = Mul (key_shifted, key_shifted)
  key_features = Concat <axis = -1> (key_square, key_shifted)
  key_product = MatMul (key_features, weight_t)
  key_score = Add (key_product, bias)
  {written} = Softmax <axis = -1> (key_score)
{mask}

  float_value = Cast <to = 1> (value)
  value_t = Transpose <perm = [0, 2, 1, 3]> (float_value)
  epsilon = Constant <value_float: float = @epsilon> ()
{product}
  float_output = Transpose <perm = [0, 2, 1, 3]> (output_t)
  output = CastLike (float_output, value)
}}
"""

_MASK = """
  mask_float = Cast <to = 1> (key_mask)
  mask_axes = Constant <value = int64[2] {{1, 3}}> ()
  mask_column = Unsqueeze (mask_float, mask_axes)
  write = Mul (write_all, mask_column)
"""

# Responsibilities are divided by d + ε before they read: they are K wide, the output is dv wide.
_BIDIRECTIONAL = """
  write_t = Transpose <perm = [0, 1, 3, 2]> (write)
  memory = MatMul (write_t, value_t)
  third = Constant <value = int64[1] {{2}}> ()
  slot_mass = ReduceSum <keepdims = 1> (write, third)
  shares = Mul (read, slot_mass)
  mass = ReduceSum <keepdims = 1> (shares, last)
  safe_mass = Add (mass, epsilon)
  normalised_read = Div (read, safe_mass)
  output_t = MatMul (normalised_read, memory)
"""

_CAUSAL = """
  zero_1 = Constant <value = int64[1] {{0}}> ()
  third = Constant <value = int64[1] {{2}}> ()
  chunk = Constant <value = int64[1] {{{chunk}}}> ()
  N = Shape <start = 1, end = 2> (value)
  negative = Neg (N)
  missing = Mod (negative, chunk)
  no_padding = Constant <value = int64[6] {{0, 0, 0, 0, 0, 0}}> ()
  pads = Concat <axis = 0> (no_padding, missing, zero_1)
  split_shape = Constant <value = int64[3] {{0, 0, -1}}> ()
  K = Shape <start = 3, end = 4> (read)
  column_shape = Shape <start = 0, end = 3> (value_t)
  column_of_one = Concat <axis = 0> (column_shape, second)
  ones = ConstantOfShape <value = float[1] {{1.0}}> (column_of_one)
  extended = Concat <axis = -1> (value_t, ones)
  extended_width = Shape <start = 3, end = 4> (extended)
  chunk_by_K = Concat <axis = 0> (split_shape, chunk, K)
  chunk_by_width = Concat <axis = 0> (split_shape, chunk, extended_width)
  read_padded = Pad (read, pads)
  write_padded = Pad (write, pads)
  value_padded = Pad (extended, pads)
  read_chunks = Reshape (read_padded, chunk_by_K)
  write_chunks = Reshape (write_padded, chunk_by_K)
  value_chunks = Reshape (value_padded, chunk_by_width)
  write_t = Transpose <perm = [0, 1, 2, 4, 3]> (write_chunks)
  states = MatMul (write_t, value_chunks)
  chunk_axis = Squeeze (third)
  before = CumSum <exclusive = 1> (states, chunk_axis)
  affinity_all = MatMul (read_chunks, write_t)
  affinity = Trilu <upper = 0> (affinity_all)
  from_before = MatMul (read_chunks, before)
  from_chunk = MatMul (affinity, value_chunks)
  chunks_out = Add (from_before, from_chunk)
  joined_shape = Concat <axis = 0> (split_shape, extended_width)
  product_padded = Reshape (chunks_out, joined_shape)
  product = Slice (product_padded, zero_1, N, third)
  width = Shape <start = 3, end = 4> (value)
  sizes = Concat <axis = 0> (width, second)
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
        written="write_all" if "masked" in words else "write",
        mask=_MASK.format() if "masked" in words else "",
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
