"""The figures of docs/deploy.md and docs/many-pictures.md, measured anew on a machine that should have nothing else to do.

    python -m benchmarks.deploy build/mnist-ssog build/digits

rewrites the blocks `capacity`, `capacity on Ray` and `a million pictures`, each with the commands that made it.
"""

import argparse
import json
import os
import platform
import shlex
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

from benchmarks.page import rewrite

DOCS = Path(__file__).parents[1] / "docs"
REPEATS = 10
"""A job of the pictures over and over: starting must not count."""


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("bundle", type=Path)
    parser.add_argument("pictures", type=Path, help="a folder of pictures")
    parser.add_argument("--seconds", default="6", help="length of a step (default: 6)")
    wish = parser.parse_args()
    pictures = sorted(path for path in wish.pictures.rglob("*") if path.is_file())
    with tempfile.TemporaryDirectory() as home:
        busy = os.getloadavg()[0]
        texts = {
            ("deploy.md", "capacity"): capacity(wish.bundle, pictures, wish.seconds, Path(home)),
            ("deploy.md", "capacity on Ray"): on_ray(wish.bundle, pictures, wish.seconds),
            ("many-pictures.md", "a million pictures"): million(wish.bundle, wish.pictures, Path(home)),
        }
    for (page, name), text in texts.items():
        rewrite(name, f"{machine(busy)}\n\n{text}", DOCS / page)
    return 0


def capacity(bundle: Path, pictures: list[Path], seconds: str, home: Path) -> str:
    """One core, then two, then the plan for a load that two cores were measured for."""
    blocks = []
    for cores in ("1", "2"):
        file = home / f"{cores}.json"
        words = ["benchmarks/capacity.py", str(bundle), "--cores", cores, "--seconds", seconds]
        blocks.append(shown(["python", *words, "PICTURES"], run([*words, *map(str, pictures), "--json", str(file)])))
    plan = ["plan", str(home / "2.json"), "--target-rps", "2000", "--p99-ms", "100"]
    blocks.append(shown(["gaussport", "plan", "capacity.json", *plan[2:]], run(["-m", "gaussport", *plan])))
    return "\n\n".join(blocks)


def on_ray(bundle: Path, pictures: list[Path], seconds: str) -> str:
    words = ["benchmarks/capacity.py", str(bundle), "--cores", "2", "--seconds", seconds, "--engine", "ray"]
    return shown(["python", *words, "PICTURES"], run([*words, *map(str, pictures)]))


def million(bundle: Path, pictures: Path, home: Path) -> str:
    """A job of some thousands, and what follows from it."""
    folder = home / "pictures"
    for repeat in range(REPEATS):
        shutil.copytree(pictures, folder / str(repeat))
    said = run(["-m", "gaussport", "classify", str(bundle), str(folder), "-o", str(home / "out"), "--json"])
    (home / "job.json").write_text(said)
    facts = json.loads(said)
    del facts["folder"]
    blocks = [shown(["gaussport", "classify", str(bundle), "PICTURES", "-o", "OUT", "--json"], json.dumps(facts))]
    for more in ([], ["--within-h", "0.25"]):
        words = ["--images", "1e6", *more]
        blocks.append(
            shown(
                ["gaussport", "plan", "job.json", *words], run(["-m", "gaussport", "plan", str(home / "job.json"), *words])
            )
        )
    return "\n\n".join(blocks)


def run(words: list[str]) -> str:
    return subprocess.run([sys.executable, *words], stdout=subprocess.PIPE, text=True, check=True).stdout


def shown(command: list[str], output: str) -> str:
    """As it would look in a terminal, for Markdown."""
    return "\n".join(f"    {line}".rstrip() for line in (f"$ {shlex.join(command)}", *output.splitlines()))


def machine(busy: float) -> str:
    model = next(
        (line.partition(":")[2].strip() for line in Path("/proc/cpuinfo").read_text().splitlines() if "model name" in line),
        platform.machine(),
    )
    return (
        f"Measured on {len(os.sched_getaffinity(0))} cores of {model}, clients included; load average before it: {busy:.1f}."
    )


if __name__ == "__main__":
    sys.exit(main())
