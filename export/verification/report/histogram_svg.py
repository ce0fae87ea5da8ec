"""How errors are spread, drawn: one bar for each quarter of a power of ten, and where the tolerance lies."""

import math
from collections.abc import Mapping, Sequence
from html import escape
from typing import Any

_WIDTH, _HEIGHT, _LEFT, _BOTTOM, _TOP = 640, 190, 44, 40, 18


def histogram_svg(title: str, histogram: Mapping[str, Any], edges: Sequence[float], tolerance: float) -> str:
    """An SVG element. `tolerance` is a share of the scale, as the edges are. Heights are square roots of counts, so that a
    few large errors beside millions of small ones are seen."""
    counts = histogram["counts"]
    tallest = max(math.sqrt(count) for count in counts) or 1
    low, high = math.log10(edges[0]), math.log10(edges[-1])
    plot = _HEIGHT - _TOP - _BOTTOM

    def x(share: float) -> float:
        return _LEFT + (math.log10(share) - low) / (high - low) * (_WIDTH - _LEFT - 8)

    bars = []
    for count, left, right in zip(counts, edges, edges[1:], strict=False):
        if count:
            height = max(1.5, math.sqrt(count) / tallest * plot)
            over = " over" if left >= tolerance else ""
            bars.append(
                f'<rect class="bar{over}" x="{x(left) + 0.5:.1f}" y="{_TOP + plot - height:.1f}" '
                f'width="{x(right) - x(left) - 1:.1f}" height="{height:.1f}"><title>{count:,} between {left:.1e} and '
                f"{right:.1e}</title></rect>"
            )
    ticks = [
        f'<text x="{x(10.0**power):.1f}" y="{_HEIGHT - _BOTTOM + 14}" text-anchor="middle">10<tspan dy="-4" '
        f'font-size="8">{power}</tspan></text>'
        for power in range(round(low), round(high) + 1, 2)
    ]
    line = ""
    if edges[0] <= tolerance <= edges[-1]:
        place = x(tolerance)
        line = (
            f'<line class="limit" x1="{place:.1f}" x2="{place:.1f}" y1="{_TOP}" y2="{_TOP + plot}"/>'
            f'<text class="limit" x="{place + 4:.1f}" y="{_TOP + 9}">tolerance</text>'
        )
    total = sum(counts) + histogram["zeros"] + histogram["lost"]
    notes = f"{total:,} logits, {histogram['zeros']:,} equal to the bit, {histogram['lost']:,} not finite"
    return (
        f'<svg viewBox="0 0 {_WIDTH} {_HEIGHT}" role="img" aria-label="{escape(title, quote=True)}: {notes}">'
        f'<line class="axis" x1="{_LEFT}" x2="{_WIDTH - 8}" y1="{_TOP + plot}" y2="{_TOP + plot}"/>'
        f"{''.join(bars)}{''.join(ticks)}{line}"
        f'<text x="{_LEFT}" y="{_HEIGHT - 6}">absolute error ÷ the largest logit · {notes}</text></svg>'
    )
