"""`python -m gaussport.plugins.kernels.table [PAGE]`: compile every tabled launch and write down what it uses.

The table goes between two marks in the page (docs/kernels.md); without a PAGE it is printed. Exit code 1 when a kernel of a
model that must not spill does. Needs triton but no GPU, and some ten minutes.
"""

import sys
from pathlib import Path

from rich.console import Console
from rich.progress import track

from gaussport.errors import UsageError
from gaussport.plugins.kernels.aot import compile_launch
from gaussport.plugins.kernels.architectures import ARCHITECTURES
from gaussport.plugins.kernels.resources import Resources, read_resources
from gaussport.plugins.kernels.shapes import TabledLaunch, tabled_launches

BEGIN, END = "<!-- resources: written by gaussport.plugins.kernels.table -->", "<!-- end of resources -->"


def main(arguments: list[str]) -> int:
    """Write or print the table, and name the spills that may not be."""
    console = Console(stderr=True)
    jobs = [(architecture, tabled) for architecture in ARCHITECTURES for tabled in tabled_launches(architecture)]
    cells, spills = {}, []
    for architecture, tabled in track(jobs, "compiling", console=console):
        used = read_resources(compile_launch(tabled.launch, architecture))
        cells[_row(tabled), architecture] = used
        if tabled.published and used.spill_bytes:
            spills.append(f"{' '.join(_row(tabled))} spills {used.spill_bytes} bytes per thread on sm_{architecture}")
    text = _markdown(cells)
    if arguments:
        page = Path(arguments[0])
        page.write_text(_between_marks(page.read_text(encoding="utf-8"), text), encoding="utf-8")
    else:
        sys.stdout.write(text)
    for spill in spills:
        console.print(spill)
    return 1 if spills else 0


Row = tuple[str, str, str]


def _row(tabled: TabledLaunch) -> Row:
    return tabled.model, tabled.launch.name, tabled.dtype


def _markdown(cells: dict[tuple[Row, int], Resources]) -> str:
    rows = list(dict.fromkeys(row for row, _ in cells))
    heading = ["model", "kernel", "dtype", *(f"sm_{architecture}" for architecture in ARCHITECTURES)]
    lines = [heading, ["---"] * len(heading)]
    for row in rows:
        lines.append([row[0], f"`{row[1]}`", row[2], *(_cell(cells.get((row, arch))) for arch in ARCHITECTURES)])
    return "\n".join(f"| {' | '.join(line)} |" for line in lines) + "\n"


def _cell(used: Resources | None) -> str:
    if used is None:  # planned with other kernels on this architecture
        return "—"
    spill = f" **+{used.spill_bytes}**" if used.spill_bytes else ""
    return f"{used.registers}{spill} · {used.shared_bytes / 1024:.0f}"


def _between_marks(page: str, table: str) -> str:
    before, found_begin, rest = page.partition(BEGIN)
    _, found_end, after = rest.partition(END)
    if not (found_begin and found_end):
        raise UsageError(f"the page has no lines {BEGIN!r} and {END!r} to write the table between: add them")
    return f"{before}{BEGIN}\n\n{table}\n{END}{after}"


if __name__ == "__main__":
    raise SystemExit(main(sys.argv[1:]))
