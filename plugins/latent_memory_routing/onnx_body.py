"""The bodies of `LatentMemoryRouting` that take all tokens at once, as text for `onnx.parser`; `onnx_tiled` shares parts.

Tokens run along the last axis from the scores on: [B, P, K, N]. Softmax over components is then made of whole-array steps
that ONNX Runtime vectorises along tokens, and the products with the memory need no transpose of their own. Exponents end at
`LEAST_LOG`, so that no responsibility becomes a subnormal number, with which products take tens of times as long. Otherwise
numerics are those of `torch_op`: shifted, expanded squares in one MatMul, and for causal order a chunked scan over [V, 1]
whose running memory is an exclusive CumSum.
"""

from gaussport.plugins.latent_memory_routing.memory_product import CHUNK

LEAST_LOG = -60.0
"""exp(−60) is 2⁻⁸⁶ of a token's largest responsibility."""

HEAD = """
<domain: "{domain}", opset_import: ["" : {opset}]>
{name} <epsilon: float = 1e-06, causal: int = 0>
({inputs}) => (output)
{{
  float_query = Cast <to = 1> (query)
  float_key = Cast <to = 1> (key)
  float_value = Cast <to = 1> (value)
"""

# weight [P, K, 2·dr + 1] meets the features [x², x, 1] of a shifted x. What components share does not change a softmax.
MIXTURE = f"""
  float_mean = Cast <to = 1> (mean)
  float_variance = Cast <to = 1> (variance)
  float_prior = Cast <to = 1> (log_prior)
  epsilon = Constant <value_float: float = @epsilon> ()
  half = Constant <value = float {{0.5}}> ()
  minus_half = Constant <value = float {{-0.5}}> ()
  two_pi = Constant <value = float {{6.283185307179586}}> ()
  least_log = Constant <value = float {{{LEAST_LOG}}}> ()
  zero_1 = Constant <value = int64[1] {{0}}> ()
  one_1 = Constant <value = int64[1] {{1}}> ()
  last = Constant <value = int64[1] {{-1}}> ()
  components = Constant <value = int64[1] {{-2}}> ()

  centre = ReduceMean <keepdims = 1> (float_mean, one_1)
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
  weight_common = ReduceMean <keepdims = 1> (weight_all, one_1)
  weight = Sub (weight_all, weight_common)

  P = Shape <start = 2, end = 3> (value)
  column = Constant <value = int64[2] {{-1, 1}}> ()
  centre_column = Reshape (centre, column)
"""

# Γ of query or key is gauss / total, […, P, K, N] / [.., P, 1, N], from its tokens [.., N, P·dr].
SCORE = """
  {x}_t = Transpose <perm = {perm}> ({x}_channels)
  {x}_shifted = Sub ({x}_t, centre_column)
  {x}_square = Mul ({x}_shifted, {x}_shifted)
  {x}_lines = Reshape ({x}_shifted, heads_shape)
  {x}_squares = Reshape ({x}_square, heads_shape)
  {x}_features = Concat <axis = -2> ({x}_squares, {x}_lines, ones)
  {x}_score = MatMul (weight, {x}_features)
  {x}_peak = ReduceMax <keepdims = 1> ({x}_score, components)
  {x}_below = Sub ({x}_score, {x}_peak)
  {x}_log = Clip ({x}_below, least_log)
  {x}_gauss = Exp ({x}_log)
"""

WRITTEN = """
  key_total = ReduceSum <keepdims = 1> (key_gauss, components)
{share}
  written = Mul (key_gauss, key_share)
"""
UNMASKED = """
  key_share = Reciprocal (key_total)
"""
MASKED = """
  key_share = Div (mask_row, key_total)
"""

# Γ_Q = gauss / total would be divided by d + ε next; gauss alone, divided by Σ gauss·(Z + ε), is the same.
READ = """
  mass = MatMul (slot_row, query_gauss)
  query_share = Reciprocal (mass)
  read = Mul (query_gauss, query_share)
"""

WHOLE = """
  channels_shape = Constant <value = int64[3] {{0, 0, -1}}> ()
  B_and_N = Shape <start = 0, end = 2> (value)
  B, N = Split <num_outputs = 2> (B_and_N)
  heads_shape = Concat <axis = 0> (zero_1, P, last, N)
  ones_shape = Concat <axis = 0> (B, P, one_1, N)
  ones = ConstantOfShape <value = float[1] {{1.0}}> (ones_shape)
  query_channels = Reshape (float_query, channels_shape)
  key_channels = Reshape (float_key, channels_shape)
{query}
{key}
{mask}
{written}
  value_t = Transpose <perm = [0, 2, 1, 3]> (float_value)
{product}
  like = CastLike (output_t, value)
  output = Transpose <perm = [0, 2, 1, 3]> (like)
}}
"""
MASK = """
  mask_float = Cast <to = 1> (key_mask)
  mask_axes = Constant <value = int64[2] {1, 2}> ()
  mask_row = Unsqueeze (mask_float, mask_axes)
"""
BIDIRECTIONAL = f"""
  memory = MatMul (written, value_t)
  slot_mass = ReduceSum <keepdims = 1> (written, last)
  slot_safe = Add (slot_mass, epsilon)
  slot_row = Transpose <perm = [0, 1, 3, 2]> (slot_safe)
{READ}
  read_t = Transpose <perm = [0, 1, 3, 2]> (read)
  output_t = MatMul (read_t, memory)
"""
CAUSAL = f"""
  chunk = Constant <value = int64[1] {{{CHUNK}}}> ()
  negative = Neg (N)
  missing = Mod (negative, chunk)
  no_padding = Constant <value = int64[7] {{0, 0, 0, 0, 0, 0, 0}}> ()
  row_pads = Concat <axis = 0> (no_padding, missing)
  six_zeros = Constant <value = int64[6] {{0, 0, 0, 0, 0, 0}}> ()
  column_pads = Concat <axis = 0> (six_zeros, missing, zero_1)
  K = Shape <start = 1, end = 2> (mean)
  rows_shape = Concat <axis = 0> (zero_1, zero_1, K, last, chunk)
  query_total = ReduceSum <keepdims = 1> (query_gauss, components)
  query_share = Reciprocal (query_total)
  read = Mul (query_gauss, query_share)
  read_padded = Pad (read, row_pads)
  read_split = Reshape (read_padded, rows_shape)
  read_chunks = Transpose <perm = [0, 1, 3, 4, 2]> (read_split)
  written_padded = Pad (written, row_pads)
  written_split = Reshape (written_padded, rows_shape)
  written_chunks = Transpose <perm = [0, 1, 3, 2, 4]> (written_split)

  ones_t = Transpose <perm = [0, 1, 3, 2]> (ones)
  extended = Concat <axis = -1> (value_t, ones_t)
  value_padded = Pad (extended, column_pads)
  extended_width = Shape <start = 3, end = 4> (extended)
  columns_shape = Concat <axis = 0> (zero_1, zero_1, last, chunk, extended_width)
  value_chunks = Reshape (value_padded, columns_shape)

  states = MatMul (written_chunks, value_chunks)
  chunk_axis = Constant <value = int64 {{2}}> ()
  before = CumSum <exclusive = 1> (states, chunk_axis)
  affinity_all = MatMul (read_chunks, written_chunks)
  affinity = Trilu <upper = 0> (affinity_all)
  from_before = MatMul (read_chunks, before)
  from_chunk = MatMul (affinity, value_chunks)
  chunks_out = Add (from_before, from_chunk)
  joined_shape = Concat <axis = 0> (zero_1, zero_1, last, extended_width)
  product_padded = Reshape (chunks_out, joined_shape)
  third = Constant <value = int64[1] {{2}}> ()
  product = Slice (product_padded, zero_1, N, third)
  value_width = Shape <start = 3, end = 4> (value)
  sizes = Concat <axis = 0> (value_width, one_1)
  numerator, safe = Split <axis = -1> (product, sizes)
  safe_mass = Add (safe, epsilon)
  output_t = Div (numerator, safe_mass)
"""


def head(domain: str, name: str, opset: int, operands: list[str]) -> str:
    """What all bodies begin with: their signature, the operands in float32, and the mixture."""
    return HEAD.format(domain=domain, name=name, opset=opset, inputs=", ".join(operands)) + MIXTURE


def text(domain: str, name: str, opset: int, operands: list[str], causal: bool) -> str:
    """The body for these operands: the last may be `key_mask`."""
    masked = operands[-1] == "key_mask"
    return head(domain, name, opset, operands) + WHOLE.format(
        query=SCORE.format(x="query", perm=[0, 2, 1]),
        key=SCORE.format(x="key", perm=[0, 2, 1]),
        mask=MASK if masked else "",
        written=WRITTEN.format(share=MASKED if masked else UNMASKED),
        product=CAUSAL if causal else BIDIRECTIONAL,
    )
