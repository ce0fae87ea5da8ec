"""Figures in docs/performance.md: each benchmark rewrites the block between its own two marks, and its own plots."""

from pathlib import Path

from matplotlib.figure import Figure

PAGE = Path(__file__).parents[1] / "docs" / "performance.md"
PLOTS = PAGE.parent / "img"


def rewrite(name: str, text: str, page: Path = PAGE) -> None:
    """Put `text` between `<!-- name -->` and `<!-- end of name -->`.

    Raises:
        SystemExit: the page has no such block.
    """
    begin, end = f"<!-- {name} -->", f"<!-- end of {name} -->"
    before, found, rest = page.read_text(encoding="utf-8").partition(begin)
    _, closed, after = rest.partition(end)
    if not found or not closed:
        raise SystemExit(f"{page} has no block {begin} … {end}")
    page.write_text(f"{before}{begin}\n{text.strip()}\n{end}{after}", encoding="utf-8")


def save_plot(figure: Figure, name: str) -> None:
    """Write `docs/img/NAME.svg`, the same bytes for the same figures."""
    figure.savefig(PLOTS / f"{name}.svg", metadata={"Date": None}, bbox_inches="tight")


def table(heads: list[str], rows: list[list[str]], left: int = 1) -> str:
    """A Markdown table whose first `left` columns are words and whose others are numbers."""
    lines = [" | ".join(heads), "|".join("---" if n < left else "---:" for n in range(len(heads)))]
    return "\n".join(f"| {line} |" if n != 1 else f"|{line}|" for n, line in enumerate([*lines, *map(" | ".join, rows)]))
