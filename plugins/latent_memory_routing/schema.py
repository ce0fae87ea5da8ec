"""Names and shapes of `LatentMemoryRouting`. B batch, N tokens, P heads, K components, dr routing width, dv value width."""

from gaussport.plugins.operator import Operand, Operator

OPERATOR = Operator(
    name="LatentMemoryRouting",
    folder="latent_memory_routing",
    operands=(
        Operand("query", "B N P dr"),
        Operand("key", "B N P dr"),
        Operand("value", "B N P dv"),
        Operand("mean", "P K dr"),
        Operand("variance", "P K dr"),
        Operand("log_prior", "P K"),
        Operand("key_mask", "B N", optional=True),
    ),
    attributes=(("epsilon", 1e-6), ("causal", 0)),
)
