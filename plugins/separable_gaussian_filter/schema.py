"""Names and shapes of `SeparableGaussianFilter`. B batch, H, W token grid, P heads, D head width, R atoms;
b is 1 or B and (h, w) is (1, 1) or (H, W): a fixed field is one field for all tokens, a steered one has its own each."""

from collections.abc import Mapping

from gaussport.plugins.operator import Operand, Operator


def _broadcast_rule(sizes: Mapping[str, int]) -> str | None:
    field = (sizes["b"], sizes["h"], sizes["w"])
    grids = ((1, 1), (sizes["H"], sizes["W"]))
    if field[0] in (1, sizes["B"]) and field[1:] in grids:
        return None
    return (
        f"offset, width and weight are for [b, h, w] = {list(field)} but value is for "
        f"[B, H, W] = {[sizes['B'], sizes['H'], sizes['W']]}: b must be 1 or B, (h, w) must be (1, 1) or (H, W)"
    )


OPERATOR = Operator(
    name="SeparableGaussianFilter",
    folder="separable_gaussian_filter",
    operands=(
        Operand("value", "B H W P D"),
        Operand("offset", "b h w P R 2"),
        Operand("width", "b h w P R 2"),
        Operand("weight", "b h w P R"),
    ),
    rule=_broadcast_rule,
)
