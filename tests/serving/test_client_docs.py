"""Every example of docs/clients.md runs, as it is written, against a server."""

import os
import re
import shutil
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from PIL import Image

PAGE = Path(__file__).parents[2] / "docs" / "clients.md"
BLOCKS = re.findall(r"^```(\w+)\n(.*?)^```$", PAGE.read_text("utf-8"), re.DOTALL | re.MULTILINE)
COMMANDS = [("sh", line) for language, block in BLOCKS if language == "sh" for line in block.strip().splitlines()]
PROGRAMS = [(language, block) for language, block in BLOCKS if language != "sh"]


@pytest.fixture
def folder(tmp_path: Path, make_picture: Callable[..., Image.Image], encode: Callable[..., bytes]) -> Path:
    (tmp_path / "cat.png").write_bytes(encode(make_picture(1)))
    (tmp_path / "dog.jpg").write_bytes(encode(make_picture(2), "JPEG"))
    (tmp_path / "pictures").mkdir()
    for index in range(5):
        (tmp_path / "pictures" / f"{index}.png").write_bytes(encode(make_picture(index)))
    return tmp_path


def test_the_page_has_an_example_for_each_kind_of_client() -> None:
    assert {language for language, _ in BLOCKS} == {"sh", "python", "js"}
    assert len(COMMANDS) == 6
    assert len(PROGRAMS) == 6


@pytest.mark.parametrize(("language", "text"), COMMANDS + PROGRAMS, ids=lambda part: part if len(part) < 9 else part[:40])
def test_the_example_runs(server: Any, folder: Path, language: str, text: str) -> None:
    command = {"sh": ["bash", "-ec"], "python": [sys.executable, "-c"], "js": ["node", "--input-type=module", "-e"]}[
        language
    ]
    program = text.split()[0] if language == "sh" else command[0]
    scripts = str(Path(sys.executable).parent)
    path = scripts + os.pathsep + os.environ["PATH"]
    if shutil.which(program, path=path) is None:
        pytest.skip(f"{program} is not installed")
    text = text.replace("127.0.0.1:8000", f"127.0.0.1:{server.port}").replace("mnist-ssog", "tiny")
    environment = {**os.environ, "PATH": path, "NO_PROXY": "127.0.0.1", "no_proxy": "127.0.0.1"}
    done = subprocess.run([*command, text], cwd=folder, env=environment, capture_output=True, text=True, timeout=60)
    assert done.returncode == 0, done.stderr
    assert "label" in done.stdout or "[" in done.stdout
    assert "Traceback" not in done.stderr
