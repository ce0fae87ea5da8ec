"""The figures as Markdown, between the marks of the page that they belong to."""

import re
import statistics
from pathlib import Path

from rounds import Contestant

BEGIN, END = "<!-- serving: begin -->", "<!-- serving: end -->"


def table(contestants: list[Contestant], limits: dict[str, list[float]]) -> str:
    """One line for each server, and one for the limit: medians of the rounds."""
    lines = [
        "| | body | ms of one core | limit ÷ that | requests/s | p50 ms | p99 ms | memory MB |",
        "|---|---|---|---|---|---|---|---|",
    ]
    for kind, costs in limits.items():
        limit = statistics.median(costs)
        what = "the session alone" if kind == "tensor" else "decoder, batch and session in one process"
        lines.append(f"| *limit: {what}* | {kind} | {limit:.2f} | 1 | {1000 / limit:.0f} | | | |")
        for each in sorted(contestants, key=lambda each: statistics.median(each.cpu_ms[kind])):
            cost = statistics.median(each.cpu_ms[kind])
            shares = [mine / own for mine, own in zip(costs, each.cpu_ms[kind], strict=True)]
            spread = f"{statistics.median(shares):.2f} ({min(shares):.2f}–{max(shares):.2f})"
            lines.append(
                f"| {each.name} | {kind} | {cost:.2f} | {spread} | {statistics.median(each.rate[kind]):.0f} "
                f"| {each.quantile_ms(kind, 0.5):.0f} | {each.quantile_ms(kind, 0.99):.0f} | {each.memory_mb:.0f} |"
            )
    return "\n".join(lines)


def rewrite(page: Path, text: str) -> None:
    """Put the text between the marks; SystemExit when the page has none."""
    content = page.read_text()
    if BEGIN not in content:
        raise SystemExit(f"{page} has no line {BEGIN}: nothing was written")
    block = f"{BEGIN}\n{text}\n{END}"
    page.write_text(re.sub(f"{re.escape(BEGIN)}.*?{re.escape(END)}", lambda _: block, content, flags=re.DOTALL))
