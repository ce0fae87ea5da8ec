"""What a container meets when it is started wrongly: one sentence and the documented exit code, never a traceback."""

import importlib
import os
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from gaussport.cli import main
from tests.deploy.conftest import gaussport


@pytest.fixture(autouse=True)
def _left_as_it_was() -> Iterator[None]:
    """The server sets a handler for SIGTERM; and what it imports later must not be closed to nobody."""
    for name in ("server", "logs", "report", "predictions", "runtime"):
        importlib.import_module(f"gaussport.serving.{name}")
    handler = signal.getsignal(signal.SIGTERM)
    yield
    signal.signal(signal.SIGTERM, handler)


@contextmanager
def as_nobody() -> Iterator[None]:
    """Root may read everything: be somebody else for a while."""
    if os.geteuid() != 0:
        yield
        return
    os.seteuid(65534)
    try:
        yield
    finally:
        os.seteuid(0)


@pytest.mark.parametrize("closed", ["bundle", "bundle/bundle.json", "bundle/model.onnx", "."])
@pytest.mark.parametrize("command", [["serve", "--port", "0"], ["classify"]])
def test_a_bundle_that_may_not_be_read(
    bundle: Path, closed: str, command: list[str], capfd: pytest.CaptureFixture[str]
) -> None:
    with tempfile.TemporaryDirectory() as home:  # not tmp_path: its parents are closed to nobody
        os.chmod(home, 0o755)  # noqa: PTH101
        copy = Path(shutil.copytree(bundle, Path(home, "bundle")))
        (Path(home) / "one.png").write_bytes(b"")
        pictures = [str(Path(home) / "one.png")] if command == ["classify"] else []
        os.chmod(Path(home, closed), 0)  # noqa: PTH101
        with as_nobody():
            code = main([command[0], str(copy), *pictures, *command[1:]])
        os.chmod(Path(home, closed), 0o755)  # noqa: PTH101
    said = capfd.readouterr().err
    assert (code, len(said.splitlines())) == (1, 1), said
    assert "ermi" in said or "closed to this user" in said


def test_a_port_that_is_taken(bundle: Path) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        answer = gaussport("serve", bundle, "--port", str(taken.getsockname()[1]))
    assert answer.returncode == 1
    assert "choose another --port" in answer.stderr
    assert len(answer.stderr.splitlines()) == 1


@pytest.mark.parametrize("command", [["serve"], ["classify", "one.png", "-o", "out"]])
def test_ray_that_is_not_installed(bundle: Path, command: list[str], tmp_path: Path) -> None:
    (tmp_path / "one.png").write_bytes(b"")
    words = [command[0], str(bundle), *command[1:], "--engine", "ray"]
    code = f"import sys; sys.modules['ray'] = None; from gaussport.cli import main; sys.exit(main({words!r}))"
    answer = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, cwd=tmp_path)
    assert (answer.returncode, len(answer.stderr.splitlines())) == (1, 1), answer.stderr
    assert "install gaussport[ray]" in answer.stderr


@pytest.mark.parametrize("provider", ["cuda", "tensorrt", "tensorrt-rtx"])
def test_a_gpu_that_is_not_there(bundle: Path, provider: str, capfd: pytest.CaptureFixture[str]) -> None:
    assert main(["serve", str(bundle), "--port", "0", "--provider", provider]) == 1
    said = capfd.readouterr().err
    assert provider in said
    assert len(said.splitlines()) == 1


def test_workers_without_a_writable_temporary_folder(
    bundle: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    def refuse(**_: str) -> str:
        raise FileNotFoundError(2, "No usable temporary directory found")

    monkeypatch.setattr("tempfile.mkdtemp", refuse)
    assert main(["serve", str(bundle), "--port", "0", "--workers", "2"]) == 1
    said = capfd.readouterr().err
    assert "TMPDIR" in said
    assert len(said.splitlines()) == 1
