"""A writer that is killed at any moment leaves the old bundle or the new one, whole, and nothing that stays."""

import fcntl
import os
import subprocess
import sys
import textwrap
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from gaussport.export.bundle import draft
from gaussport.export.bundle.store import open_bundle

ROUNDS = 25

SCRIPT = textwrap.dedent("""
    import itertools, os, pathlib, random, signal, sys, time
    from datetime import UTC, datetime
    from gaussport.export.bundle.manifest import Manifest, Provenance, TensorSpec
    from gaussport.export.bundle.store import open_bundle, writing_bundle
    from gaussport.models.image.preprocess import Preprocessing

    def write(target, generation):
        with writing_bundle(target, overwrite=target.exists()) as draft:
            for name in ("model.onnx", "model.onnx.data", "report.json"):
                (draft.folder / name).write_bytes(b"%d " % generation * 50_000)
            draft.finish(lambda files: Manifest(
                name="tiny", version=str(generation), family="dot", config={}, labels=("cat", "dog"),
                preprocessing=Preprocessing(size=(8, 8)),
                input=TensorSpec(name="pixels", dtype="float32", shape=("batch", 3, 8, 8)),
                output=TensorSpec(name="logits", dtype="float32", shape=("batch", 2)),
                max_batch=8, opset=20, operators={}, precision="fp32",
                provenance=Provenance(checkpoint="x", checkpoint_sha256="0" * 64, weights="raw", tools={},
                                      created=datetime(2026, 1, 1, tzinfo=UTC)),
                files=files,
            ))

    target, moments, generation = pathlib.Path(sys.argv[1]), random.Random(sys.argv[1]), 0
    write(target, generation)
    for _ in range(int(sys.argv[2])):
        child = os.fork()
        if child == 0:
            for number in itertools.count(generation + 1):
                write(target, number)
        time.sleep(moments.uniform(0, 0.08))
        os.kill(child, signal.SIGKILL)
        os.waitpid(child, 0)
        bundle = open_bundle(target)  # every hash
        assert int(bundle.manifest.version) >= generation, "an older bundle came back"
        generation = int(bundle.manifest.version)
        assert bundle.read("model.onnx.data").split()[0] == b"%d" % generation
    write(target, generation + 1)
    assert [path.name for path in target.parent.iterdir()] == [target.name], list(target.parent.iterdir())
    print(generation)
""")


@pytest.mark.parametrize("name", ["tiny", "tiny.zip"])
def test_a_kill_at_any_moment_leaves_a_whole_bundle(tmp_path: Path, name: str) -> None:
    command = [sys.executable, "-c", SCRIPT, str(tmp_path / name), str(ROUNDS)]
    done = subprocess.run(command, env=os.environ, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    assert int(done.stdout) > 0  # some writer got through, so that kills met every stage of one


@pytest.mark.parametrize("moment", ["opened", "locked"])
def test_a_writer_without_its_lock_yet_is_not_taken_for_a_dead_one(
    tmp_path: Path, write: Callable[..., Path], monkeypatch: pytest.MonkeyPatch, moment: str
) -> None:
    """Two writers of one destination: the second sweeps just before the first has opened, or locked, its new folder."""
    module, name = {"opened": (os, "open"), "locked": (fcntl, "flock")}[moment]
    original = getattr(module, name)
    swept: list[Path] = []

    def late(*arguments: Any) -> Any:
        drafts = [path for path in tmp_path.iterdir() if path.is_dir()]
        if drafts and not swept:
            swept.extend(drafts)
            monkeypatch.setattr(module, name, original)
            draft._sweep(tmp_path / "tiny")
            assert not drafts[0].exists()
        return original(*arguments)

    monkeypatch.setattr(module, name, late)
    assert open_bundle(write(tmp_path / "tiny")).read("model.onnx") == b"weights"
    assert swept
    assert [path.name for path in tmp_path.iterdir()] == ["tiny"]
