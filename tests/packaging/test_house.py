"""The shape of the house: imports run one way, and everything a page links to is there."""

import ast
import re
import subprocess
import sys
from pathlib import Path

import pytest

from gaussport.models import zoo
from gaussport.models.data.mnist import write_held_out

ROOT = Path(__file__).parents[2]
PAGES = [ROOT / "README.md", ROOT / "CONTRIBUTING.md", *sorted((ROOT / "docs").glob("*.md"))]

# For each package: the prefixes of ours that it may import, besides itself and the modules at the top.
ARROWS = {
    "plugins": (),
    "models": ("gaussport.plugins",),
    "export": ("gaussport.models", "gaussport.plugins"),
    "serving": ("gaussport.export.bundle", "gaussport.models.image", "gaussport.models.text"),
}
TOP = ("gaussport.as_served", "gaussport.errors", "gaussport.freed_memory", "gaussport.gpu", "gaussport.onnx_runtime")


def imports(path: Path) -> set[str]:
    """Every module that a file imports by its full name."""
    found = set()
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.Import):
            found |= {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom):
            assert node.level == 0, f"{path} imports relatively"
            found |= {f"{node.module}.{alias.name}" for alias in node.names}
    return found


@pytest.mark.parametrize("package", ARROWS)
def test_imports_run_one_way(package: str) -> None:
    allowed = (f"gaussport.{package}", *ARROWS[package], *TOP, "gaussport.__version__")
    wrong = {
        f"{path.relative_to(ROOT)} imports {name}"
        for path in (ROOT / package).rglob("*.py")
        for name in imports(path)
        if name.startswith("gaussport.") and not name.startswith(allowed)
    }
    assert not wrong


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_links_of_the_pages_lead_somewhere(page: Path) -> None:
    targets = re.findall(r"\]\(([^)#\s]+)", page.read_text())
    missing = [target for target in targets if "://" not in target and not (page.parent / target).exists()]
    assert not missing


def test_serving_imports_none_of_the_heavy_packages() -> None:
    code = "import sys, gaussport.serving.server, gaussport.serving.client, gaussport.serving.commands.serve\n"
    code += "print(*sorted({name.split('.')[0] for name in sys.modules}))"
    loaded = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout.split()
    assert not {"torch", "onnx", "onnxscript", "triton", "tensorrt", "safetensors"} & set(loaded)


def test_pictures_that_the_readme_names_are_among_the_held_out_digits(tmp_path: Path) -> None:
    write_held_out(tmp_path)
    named = re.findall(r"build/digits/(\d/\d+\.png)", (ROOT / "README.md").read_text())
    assert named
    assert all((tmp_path / name).is_file() for name in named)


@pytest.mark.parametrize("option", [[], ["--json"]])
def test_a_full_disk_under_the_output_is_one_sentence(option: list[str]) -> None:
    words = [sys.executable, "-m", "gaussport", "inspect", str(zoo.path("mnist-dot")), *option]
    with Path("/dev/full").open("w") as full:
        answer = subprocess.run(words, stdout=full, stderr=subprocess.PIPE, text=True)
    assert (answer.returncode, answer.stderr) == (1, "gaussport inspect: the output cannot be written: no space is left\n")
