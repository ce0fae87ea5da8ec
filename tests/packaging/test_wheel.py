"""A clean clone becomes an sdist and a wheel that hold everything, under one name."""

import subprocess
import sys
import zipfile
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]


@pytest.fixture(scope="module")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The wheel of what git tracks, built without isolation from the setuptools of this environment."""
    folder = tmp_path_factory.mktemp("wheel")
    tree = folder / "tree"
    tree.mkdir()
    files = subprocess.run(["git", "ls-files", "-z"], cwd=ROOT, capture_output=True, check=True).stdout
    copy = subprocess.run(["tar", "--null", "-T", "-", "-cf", "-"], cwd=ROOT, input=files, capture_output=True, check=True)
    subprocess.run(["tar", "-xf", "-"], cwd=tree, input=copy.stdout, check=True)
    words = [
        sys.executable,
        "-m",
        "pip",
        "wheel",
        "--quiet",
        "--no-deps",
        "--no-build-isolation",
        "-w",
        str(folder),
        str(tree),
    ]
    subprocess.run(words, check=True, capture_output=True)
    return next(folder.glob("*.whl"))


def test_wheel_holds_every_module_and_nothing_beside_the_package(wheel: Path) -> None:
    names = set(zipfile.ZipFile(wheel).namelist())
    tops = {name.split("/")[0] for name in names if ".dist-info/" not in name}
    assert tops == {"gaussport"}
    tracked = subprocess.run(
        ["git", "ls-files", "models", "plugins", "export", "serving"], cwd=ROOT, capture_output=True, text=True, check=True
    ).stdout.split()
    assert not {f"gaussport/{name}" for name in tracked} - names
    needed = ("Dockerfile", "LICENSE", "healthcheck.py", "requirements-cpu.txt", "requirements-gpu.txt", "sbom.py")
    assert {f"gaussport/docker/{name}" for name in needed} <= names


def test_wheel_imports_in_an_environment_of_its_own(wheel: Path, tmp_path: Path) -> None:
    zipfile.ZipFile(wheel).extractall(tmp_path)
    code = f"""
import sys
sys.path.insert(0, {str(tmp_path)!r})
import gaussport, gaussport.cli, gaussport.serving.server
assert gaussport.__file__.startswith({str(tmp_path)!r}), gaussport.__file__
sys.exit(gaussport.cli.main(["--version"]))
"""
    answer = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
    assert answer.returncode == 0, answer.stderr
    assert answer.stdout.startswith("gaussport ")
