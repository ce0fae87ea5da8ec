"""The commands with files as people have them: the wrapped, averaged, half-precision one works; what is none is refused at
once, in one line, with nothing run and nothing left."""

import argparse
import copy
import functools
import json
import os
import pickle
import re
import resource
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
import torch

from gaussport.cli import main
from gaussport.errors import CheckpointError, ConfigurationError
from gaussport.export.bundle.store import Bundle, open_bundle
from gaussport.export.rereading import read_again
from gaussport.export.session import Session
from gaussport.models.checkpoint import read_checkpoint
from gaussport.models.checkpoint.building import build_classifier
from gaussport.models.classifier import Classifier
from gaussport.models.image.preprocess import Preprocessing
from gaussport.models.presets import preset
from tests.models.checkpoints import good_checkpoint, save, torch_document


def moved(model: Classifier, seed: int) -> Classifier:
    """Every parameter away from where it starts, as training leaves it."""
    draw = torch.Generator().manual_seed(seed)
    with torch.no_grad():
        for name, parameter in model.named_parameters():
            parameter.add_(torch.randn(parameter.shape, generator=draw), alpha=0.2)
            if name.endswith("_scale"):
                parameter.fill_(-0.5)
    return model.eval()


@pytest.fixture(scope="module")
def training_run(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Classifier]:
    """What a run under torch.compile and DDP with an average leaves, in bfloat16 and without a word about the model; and
    the averaged model itself, in float32 before the rounding."""
    raw = moved(Classifier(preset("ssog-tiny")), 0)
    ema = moved(copy.deepcopy(raw), 1)
    content = {
        "epoch": 300,
        "state_dict": {f"_orig_mod.module.{n}": t.bfloat16() for n, t in raw.state_dict().items()},
        "state_dict_ema": {f"module._orig_mod.module.{n}": t.bfloat16() for n, t in ema.state_dict().items()},
        "optimizer": {"state": {0: {"step": torch.tensor(9.0), "exp_avg": torch.zeros(3)}}, "param_groups": [{"lr": 0.1}]},
        "args": argparse.Namespace(lr=1e-3, momentum=np.float64(0.9), data=Path("data")),
        "best": np.float64(0.7),
    }
    return save(tmp_path_factory.mktemp("run") / "last.pt", content), ema


@pytest.fixture(scope="module")
def exported(training_run: tuple[Path, Classifier], tmp_path_factory: pytest.TempPathFactory) -> Bundle:
    destination = tmp_path_factory.mktemp("bundle") / ("long-" + "x" * 240)  # file systems take 255
    assert main(["export", str(training_run[0]), "-o", str(destination), "--max-batch", "2", "--mean", "0.4,0.5,0.6"]) == 0
    return open_bundle(destination)


def test_the_bundle_answers_as_the_module_that_was_trained(exported: Bundle, training_run: tuple[Path, Classifier]) -> None:
    pixels = np.random.default_rng(0).standard_normal((4, 3, 32, 32), dtype=np.float32)
    logits = Session(exported.read("model.onnx")).run(pixels)
    with torch.no_grad():
        inputs = torch.from_numpy(pixels)
        rounded = copy.deepcopy(training_run[1]).bfloat16().float()
        np.testing.assert_allclose(logits, rounded(inputs).numpy(), rtol=0, atol=1e-5)
        before = training_run[1](inputs).numpy()
        np.testing.assert_allclose(logits, before, rtol=0, atol=1e-2 * np.abs(before).max())
        in_bfloat16 = copy.deepcopy(training_run[1]).bfloat16()(inputs.bfloat16()).float().numpy()
    np.testing.assert_allclose(logits, in_bfloat16, rtol=0, atol=3e-2 * np.abs(before).max())


def test_what_was_chosen_and_assumed_is_stored(exported: Bundle, training_run: tuple[Path, Classifier]) -> None:
    origin = exported.manifest.provenance
    assert (origin.weights, origin.weights_key, origin.stored_dtypes) == ("ema", "state_dict_ema", ("bfloat16",))
    assert origin.assumed == (
        *("preprocessing.std", "preprocessing.resize", "preprocessing.interpolation", "labels"),
        *("attention.max_offset", "attention.sigma_floor", "image_size", "gelu", "norm_epsilon"),
    )


def test_verify_reads_the_same_weights_again(
    exported: Bundle, training_run: tuple[Path, Classifier], capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["verify", str(exported.path), "--checkpoint", str(training_run[0])]) == 0
    assert "the bundle's own checkpoint" in capsys.readouterr().out


def test_a_resized_model_is_resized_again(exported: Bundle, training_run: tuple[Path, Classifier]) -> None:
    """As `--input-size 48` would have written it: verify starts from the stored positions, not from resized ones."""
    manifest = exported.manifest
    origin = manifest.provenance.model_copy(update={"resized_from": (32, 32)})
    config = {**manifest.config, "image_size": [48, 48]}
    resized = manifest.model_copy(update={"provenance": origin, "config": config})
    again = read_again(resized, training_run[0], None, None)
    assert isinstance(again.preprocessing, Preprocessing)
    assert again.preprocessing.size == (48, 48)
    assert again.state_dict["pos_embed"].shape == (1, 36, 32)
    assert again.weights == "ema"


def test_another_file_is_read_as_itself(exported: Bundle, tmp_path: Path) -> None:
    """A bundle of averaged weights, held against a file that has only trained ones: its own, not an error about averages."""
    path = save(tmp_path / "other.pt", torch_document(good_checkpoint()))
    assert read_again(exported.manifest, path, None, None).weights == "raw"


def test_inspect_says_what_was_inferred_and_from_where(
    training_run: tuple[Path, Classifier], capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["inspect", str(training_run[0])]) == 0
    out = " ".join(capsys.readouterr().out.split())
    for words in (
        "checkpoint, ema weights in bfloat16",
        "torch.save, zip",
        "the moving average under state_dict_ema; the file also has the trained parameters under state_dict (--weights raw)",
        "without the prefix module._orig_mod.module.",
        "attention.heads 2 (blocks.0.attn.mu [2, 4, 2])",
        "gelu exact (default)",
        "image_size (32, 32) (default: a square grid)",
    ):
        assert words in out
    assert main(["inspect", str(training_run[0]), "--weights", "raw", "--set", "gelu=tanh", "--json"]) == 0
    document = json.loads(capsys.readouterr().out)
    assert (document["weights"], document["weight_sets"]) == ("raw", {"state_dict": "raw", "state_dict_ema": "ema"})
    assert document["fields"]["gelu"] == {"value": "tanh", "from": "--set"}
    assert document["missing"] == {}


def test_inspect_says_what_is_missing(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = save(tmp_path / "a.pt", Classifier(preset("dot-tiny", image_size=(24, 40))).state_dict())
    assert main(["inspect", str(path)]) == 0
    out = " ".join(capsys.readouterr().out.split())
    assert "attention.heads MISSING: no shape tells how many heads there are: give --set heads=N" in out
    assert "image_size MISSING: its grid is not square" in out
    assert main(["inspect", str(path), "--json"]) == 0
    assert set(json.loads(capsys.readouterr().out)["missing"]) == {"attention.heads", "image_size"}


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"head.bias": None}, "MISFIT: a.pt lacks 1 of the configuration's 53 parameters (head.bias)"),
        ({"zzz": torch.ones(2)}, "MISFIT: a.pt has 1 that the configuration does not know (zzz)"),
        (
            {"head.weight": torch.ones(17, 32)},
            "MISFIT: head.bias has shape (10,) in a.pt but the configuration",
        ),
    ],
)
def test_inspect_says_what_does_not_fit(
    change: dict[str, torch.Tensor | None], words: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    weights = Classifier(preset("ssog-tiny")).state_dict() | change
    path = save(tmp_path / "a.pt", {name: tensor for name, tensor in weights.items() if tensor is not None})
    assert main(["inspect", str(path)]) == 0
    assert words in " ".join(capsys.readouterr().out.split())
    assert main(["inspect", str(path), "--json"]) == 0
    assert words.removeprefix("MISFIT: ") in json.loads(capsys.readouterr().out)["misfit"]
    with pytest.raises((CheckpointError, ConfigurationError), match=re.escape(words.removeprefix("MISFIT: "))):
        build_classifier(read_checkpoint(path))


# Files that are none


class Runs:
    """Pickles into a call that makes the folder `marker`."""

    def __init__(self, marker: Path) -> None:
        self.marker = str(marker)

    def __reduce__(self) -> tuple[Callable[..., None], tuple[str]]:
        return os.mkdir, (self.marker,)


PICKLES = ("zip.pt", "legacy.pt", "named.safetensors", "plain.pt", "modern.bin", "index.json", "ema.ckpt")


def dangerous(kind: str, folder: Path) -> Path:
    """A file that makes `folder/PWNED` when it is unpickled without care."""
    bomb = Runs(folder / "PWNED")
    content = {**torch_document(good_checkpoint()), "hook": bomb}
    path = folder / kind
    if kind in ("plain.pt", "modern.bin"):
        path.write_bytes(pickle.dumps({"hook": bomb}, protocol=2 if kind == "plain.pt" else 5))
    elif kind == "index.json":
        path = folder / "pytorch_model.bin.index.json"
        path.write_text(json.dumps({"weight_map": {"head.bias": "part.bin"}}))
        save(folder / "part.bin", {"head.bias": bomb})
    else:
        save(path, {"state_dict_ema": bomb} if kind == "ema.ckpt" else content, legacy=kind == "legacy.pt")
    return path


@pytest.mark.parametrize("kind", PICKLES)
@pytest.mark.parametrize("command", ["export", "inspect", "verify", "verify bundle", "serve", "classify"])
def test_nothing_in_a_file_runs_on_any_command(
    kind: str, command: str, exported: Bundle, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = dangerous(kind, tmp_path)
    (tmp_path / "a.png").write_bytes(b"")
    words = {
        "export": ["export", str(path), "-o", str(tmp_path / "out")],
        "inspect": ["inspect", str(path)],
        "verify": ["verify", str(exported.path), "--checkpoint", str(path)],
        "verify bundle": ["verify", str(path)],
        "serve": ["serve", str(path), "--port", "0"],
        "classify": ["classify", str(path), str(tmp_path / "a.png")],
    }[command]
    assert main(words) in (1, 2)
    out, err = capsys.readouterr()
    assert not (tmp_path / "PWNED").exists()
    assert not (tmp_path / "out").exists()
    assert "Traceback" not in out + err
    assert "weights_only" not in out + err
    if command in ("export", "inspect"):
        assert err.count("\n") == 1
        assert "posix.mkdir" in err or "is named .safetensors but holds a" in err


def headed(header: bytes) -> bytes:
    return len(header).to_bytes(8, "little") + header + b"\0" * 8


LIES = {
    "lfs.pt": b"version https://git-lfs.github.com/spec/v1\noid sha256:" + b"4d7a" * 16 + b"\nsize 12345\n",
    "html.pt": b"<!DOCTYPE html><html><body>404</body></html>",
    "zero.pt": b"",
    "half.pt": b"PK\x03\x04" + b"\0" * 400,
    "header.safetensors": (2**60).to_bytes(8, "little") + b"{}",
    "offsets.safetensors": headed(b'{"w":{"dtype":"F32","shape":[2],"data_offsets":[-4,4]}}'),
    "shape.safetensors": headed(b'{"w":{"dtype":"F32","shape":[9999999999],"data_offsets":[0,8]}}'),
    "short.safetensors": headed(b'{"w":{"dtype":"F32","shape":[9999999999],"data_offsets":[0,39999999996]}}'),
    "deep.safetensors": headed(b'{"a":' * 5000),
    "text.msgpack": b"\x81\xa6params\xdf\xff\xff\xff\xff",
    "array.msgpack": b"\x81\xa1w\xdd\xff\xff\xff\xff",
}


@pytest.mark.parametrize("name", LIES)
@pytest.mark.parametrize("command", ["export", "inspect"])
def test_what_is_no_checkpoint_costs_neither_memory_nor_a_traceback(
    name: str, command: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / name).write_bytes(LIES[name])
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    output = ["-o", str(tmp_path / "out")] if command == "export" else []
    assert main([command, str(tmp_path / name), *output]) == 1
    out, err = capsys.readouterr()
    assert (out, err.count("\n")) == ("", 1)
    assert name in err
    assert resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before < 50_000  # kB
    assert [path.name for path in tmp_path.iterdir()] == [name]


@pytest.mark.parametrize(
    ("name", "words"),
    [
        ("lfs.pt", "Git LFS pointer"),
        ("half.pt", "truncated zip"),
        ("shape.safetensors", "has a F32 tensor of shape [9999999999] at bytes 0 to 8"),
        ("short.safetensors", "claims 40,000,000,0"),
        ("zip.pt", "wants to use posix.mkdir"),
        ("modern.bin", "wants to use posix.mkdir"),
    ],
)
@pytest.mark.parametrize("command", ["export", "inspect"])
def test_what_can_be_told_without_torch_is_refused_before_it_is_imported(
    command: str, name: str, words: str, tmp_path: Path
) -> None:
    if name in LIES:
        (tmp_path / name).write_bytes(LIES[name])
    else:
        dangerous(name, tmp_path)
    output = ["-o", "out"] if command == "export" else []
    done = subprocess.run(
        [sys.executable, "-X", "importtime", "-m", "gaussport", command, name, *output],
        cwd=tmp_path, capture_output=True, text=True, check=False,
    )  # fmt: skip
    assert done.returncode == 1
    assert words in done.stderr.splitlines()[-1]
    imported = {line.rsplit("|", 1)[-1].strip() for line in done.stderr.splitlines() if line.startswith("import time:")}
    assert imported.isdisjoint({"torch", "onnx", "onnxruntime"})


@pytest.mark.parametrize(
    ("options", "words"),
    [
        (["--rename", "blocks"], "is not OLD=NEW"),
        (["--set", "heads"], "is not FIELD=VALUE"),
        (["--set", "colour=1"], "has no such field"),
        (["--mean", "1,2"], "one number for each channel"),
        (["--crop", "big"], "neither a number of pixels"),
        (["--weights", "ema"], "has no moving average"),
        (["--input-size", "30"], "must be a multiple of the patch"),
        (["--preprocessing", "nothing.json"], "nothing.json"),
    ],
)
def test_options_that_cannot_be_meant(
    options: list[str], words: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = save(tmp_path / "a.pt", torch_document(good_checkpoint()))
    assert main(["export", str(path), "-o", str(tmp_path / "out"), *options]) in (1, 2)
    err = capsys.readouterr().err
    assert words in err
    assert err.count("\n") == 1
    assert not (tmp_path / "out").exists()


def test_partial_objects_are_named_with_their_key(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = save(tmp_path / "a.pt", {**torch_document(good_checkpoint()), "make": functools.partial(dict)})
    assert main(["inspect", str(path)]) == 1
    assert "wants to use functools.partial" in capsys.readouterr().err
