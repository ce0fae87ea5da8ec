"""What is looked at of a `LatentMemoryRouting`: the responsibilities of queries and keys, and the mass of each slot.

The squares are not expanded here: nothing cancels, and speed is not what this is for.
"""

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import onnx
import onnx.parser

from gaussport.plugins.explanation import EXPLANATION_DOMAIN, Array, Explanation
from gaussport.plugins.latent_memory_routing.definition import responsibilities
from gaussport.plugins.latent_memory_routing.schema import OPERATOR

OUTPUTS = {
    "query_responsibility": "B N P K",
    "key_responsibility": "B N P K",
    "mass": "B 1 P K",
    "mean": "P K dr",
    "variance": "P K dr",
    "log_prior": "P K",
}

_MASKED, _CAUSAL = "Masked", "Causal"

_TEXT = """
<domain: "{domain}", opset_import: ["" : {opset}]>
{name} (query, key, value, mean_given, variance_given, prior_given{mask_operand}) => (
  query_responsibility, key_responsibility, mass, mean, variance, log_prior)
{{
  mean = Cast <to = 1> (mean_given)
  variance = Cast <to = 1> (variance_given)
  log_prior = Cast <to = 1> (prior_given)
  two_pi = Constant <value = float {{6.283185307179586}}> ()
  half = Constant <value = float {{0.5}}> ()
  last = Constant <value = int64[1] {{-1}}> ()
  component = Constant <value = int64[1] {{3}}> ()
  volume = Mul (variance, two_pi)
  log_volume = Log (volume)
{query}
{key}
{mask}
{mass}
}}
"""

_RESPONSIBILITY = """
  {x}_float = Cast <to = 1> ({x})
  {x}_column = Unsqueeze ({x}_float, component)
  {x}_distance = Sub ({x}_column, mean)
  {x}_square = Mul ({x}_distance, {x}_distance)
  {x}_scaled = Div ({x}_square, variance)
  {x}_terms = Add ({x}_scaled, log_volume)
  {x}_sum = ReduceSum <keepdims = 0> ({x}_terms, last)
  {x}_halved = Mul ({x}_sum, half)
  {x}_score = Sub (log_prior, {x}_halved)
  {result} = Softmax <axis = -1> ({x}_score)
"""
_MASK = """
  mask_float = Cast <to = 1> (key_mask)
  mask_axes = Constant <value = int64[2] {2, 3}> ()
  mask_columns = Unsqueeze (mask_float, mask_axes)
  key_responsibility = Mul (key_share, mask_columns)
"""
_MASS = """
  token = Constant <value = int64[1] {1}> ()
  mass = ReduceSum <keepdims = 1> (key_responsibility, token)
"""
_CAUSAL_MASS = """
  token = Constant <value = int64 {1}> ()
  mass = CumSum (key_responsibility, token)
"""


def variant(node: onnx.NodeProto) -> str:
    """The function's name: with or without a mask, causal or not."""
    masked = len(node.input) > 6 and bool(node.input[6])
    causal = any(attribute.name == "causal" and attribute.i for attribute in node.attribute)
    return OPERATOR.name + _MASKED * masked + _CAUSAL * causal


def function(opset: int, variant: str) -> onnx.FunctionProto:
    """Γ_Q, Γ_K [B, N, P, K] (a masked key's row is 0); the mass Z [B, 1, P, K], of causal order [B, N, P, K]; and the
    mixture itself: mean, variance [P, K, dr], log_prior [P, K]."""
    masked, causal = _MASKED in variant, _CAUSAL in variant
    text = _TEXT.format(
        domain=EXPLANATION_DOMAIN,
        opset=opset,
        name=variant,
        mask_operand=", key_mask" * masked,
        query=_RESPONSIBILITY.format(x="query", result="query_responsibility"),
        key=_RESPONSIBILITY.format(x="key", result="key_share" if masked else "key_responsibility"),
        mask=_MASK if masked else "",
        mass=_CAUSAL_MASS if causal else _MASS,
    )
    return onnx.parser.parse_function(text)


def expected(operands: Sequence[Array | None], attributes: Mapping[str, Any]) -> dict[str, Array]:
    """Γ_Q, Γ_K, Z and the mixture, by the operator's definition."""
    query, key, _, mean, variance, log_prior, mask = operands
    read, write = (responsibilities(x, mean, variance, log_prior) for x in (query, key))  # type: ignore[arg-type]
    if mask is not None:
        write = write * mask[:, :, np.newaxis, np.newaxis]
    mass = np.cumsum(write, axis=1) if attributes.get("causal") else write.sum(axis=1, keepdims=True)
    return dict(zip(OUTPUTS, (read, write, mass, mean, variance, log_prior), strict=True))  # type: ignore[arg-type]


EXPLANATION = Explanation(OPERATOR, OUTPUTS, variant, function, expected)
