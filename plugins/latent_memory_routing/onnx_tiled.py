"""The body of `LatentMemoryRouting` in both directions for a number of tokens that the model fixes, in tiles of tokens.

A core's cache holds a tile, not all tokens: a Scan over images holds one that adds up the memory, tile by tile, and one
that reads it. Inside, values keep their order [N, P, dv], which ONNX Runtime's products read as it is.
"""

import math

from gaussport.plugins.latent_memory_routing import onnx_body as parts

TILE = 512
"""Tokens in a tile, about: with 32 components and 6 heads its responsibilities are 400 kB, a fifth of a core's cache."""

_BODY = """
  K = Shape <start = 1, end = 2> (mean)
  dv = Shape <start = 3, end = 4> (value)
  tile_size = Constant <value = int64[1] {{{T}}}> ()
  tiles = Constant <value = int64[2] {{{C}, {T}}}> ()
  heads_shape = Concat <axis = 0> (P, last, tile_size)
  ones_shape = Concat <axis = 0> (P, one_1, tile_size)
  ones = ConstantOfShape <value = float[1] {{1.0}}> (ones_shape)
  memory_shape = Concat <axis = 0> (P, K, dv)
  no_memory = ConstantOfShape (memory_shape)
  mass_shape = Concat <axis = 0> (P, K, one_1)
  no_mass = ConstantOfShape (mass_shape)
  merged_shape = Constant <value = int64[3] {{0, 0, -1}}> ()
  query_merged = Reshape (float_query, merged_shape)
  key_merged = Reshape (float_key, merged_shape)
  routing_width = Shape <start = 2, end = 3> (query_merged)
  routing_shape = Concat <axis = 0> (last, tiles, routing_width)
  query_tiles = Reshape (query_merged, routing_shape)
  key_tiles = Reshape (key_merged, routing_shape)
  values_shape = Concat <axis = 0> (last, tiles, P, dv)
  value_tiles = Reshape (float_value, values_shape)
{mask}
  read_tiles = Scan <num_scan_inputs = {inputs}, body = image (
    float[{C}, {T}, PR] queries, float[{C}, {T}, PR] keys, float[{C}, {T}, P, V] values{image_mask}
  ) => (float[{C}, {T}, P, V] outputs) {{
    memory, slot_mass = Scan <num_scan_inputs = {write_inputs}, body = write (
      float[P, K, V] memory_before, float[P, K, 1] mass_before,
      float[{T}, PR] key_channels, float[{T}, P, V] value_tile{tile_mask}
    ) => (float[P, K, V] memory_after, float[P, K, 1] mass_after) {{
{key}
{written}
      tile_mass = ReduceSum <keepdims = 1> (written, last)
      mass_after = Add (mass_before, tile_mass)
      value_heads = Transpose <perm = [1, 0, 2]> (value_tile)
      tile_memory = MatMul (written, value_heads)
      memory_after = Add (memory_before, tile_memory)
    }}> (no_memory, no_mass, keys, values{masks})
    slot_safe = Add (slot_mass, epsilon)
    slot_row = Transpose <perm = [0, 2, 1]> (slot_safe)
    outputs = Scan <num_scan_inputs = 1, body = read (float[{T}, PR] query_channels) => (float[{T}, P, V] output_tile) {{
{query}
{read}
      read_t = Transpose <perm = [0, 2, 1]> (read)
      output_heads = MatMul (read_t, memory)
      output_tile = Transpose <perm = [1, 0, 2]> (output_heads)
    }}> (queries)
  }}> (query_tiles, key_tiles, value_tiles{mask_tiles})
  like = CastLike (read_tiles, value)
  output_shape = Constant <value = int64[2] {{-1, {N}}}> ()
  whole_shape = Concat <axis = 0> (output_shape, P, dv)
  output = Reshape (like, whole_shape)
}}
"""
_MASK = """
  mask_float = Cast <to = 1> (key_mask)
  mask_shape = Constant <value = int64[5] {{-1, {C}, 1, 1, {T}}}> ()
  mask_tiles = Reshape (mask_float, mask_shape)
"""


def tile(tokens: int) -> int | None:
    """Tokens in a tile, a divisor of all; None where one tile, or none of a good size, would hold them."""
    sizes = [n for n in range(TILE // 2, 2 * TILE + 1) if tokens % n == 0 and n < tokens]
    return min(sizes, key=lambda n: abs(math.log(n / TILE)), default=None)


def text(domain: str, name: str, opset: int, operands: list[str], tokens: int) -> str:
    """The body for these operands: the last may be `key_mask`."""
    size = tile(tokens)
    if size is None:
        raise ValueError(f"{tokens} tokens have no tile of {TILE // 2} to {2 * TILE}")
    masked = operands[-1] == "key_mask"
    count = tokens // size
    return parts.head(domain, name, opset, operands) + _BODY.format(
        T=size,
        C=count,
        N=tokens,
        inputs=3 + masked,
        write_inputs=2 + masked,
        mask=_MASK.format(T=size, C=count) if masked else "",
        image_mask=f", float[{count}, 1, 1, {size}] mask_rows" if masked else "",
        tile_mask=f", float[1, 1, {size}] mask_row" if masked else "",
        masks=", mask_rows" if masked else "",
        mask_tiles=", mask_tiles" if masked else "",
        key=parts.SCORE.format(x="key", perm=[1, 0]),
        query=parts.SCORE.format(x="query", perm=[1, 0]),
        written=parts.WRITTEN.format(share=parts.MASKED if masked else parts.UNMASKED),
        read=parts.READ,
    )
