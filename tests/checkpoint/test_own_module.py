"""Modules of the caller's own: the page that explains them, run as it stands, and what is refused."""

import importlib
import re
import shlex
import sys
from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
import torch
from torch import Tensor, nn

from gaussport.cli import main
from gaussport.errors import CheckpointError, ConfigurationError, ExportError, GaussportError, UsageError
from gaussport.export.bundle.store import Bundle, open_bundle
from gaussport.export.own_module import made_by, read_module, trained_module
from gaussport.export.session import Session
from gaussport.models.checkpoint import Wishes
from gaussport.models.image.preprocess import Preprocessing, to_pixels
from gaussport.models.image.wishes import PictureWishes
from tests.serving.conftest import encoded, picture, running

PAGE = Path(__file__).parents[2] / "docs" / "own-model.md"
BLOCKS = re.findall(r"```(\w+)\n(.*?)```", PAGE.read_text(encoding="utf-8"), re.DOTALL)
PIXELS = np.random.default_rng(0).standard_normal((3, 3, 64, 64), dtype=np.float32)


@pytest.fixture(scope="module")
def workshop(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """A working directory with the page's module and a checkpoint of it, wrapped as training leaves it."""
    folder = tmp_path_factory.mktemp("workshop")
    source = next(text for kind, text in BLOCKS if kind == "python" and text.startswith("# hierarchical.py"))
    (folder / "hierarchical.py").write_text(source, encoding="utf-8")
    with pytest.MonkeyPatch.context() as patch:
        patch.chdir(folder)
        patch.setattr(sys, "path", [str(folder), *sys.path])
        module = importlib.import_module("hierarchical").make()
        torch.manual_seed(0)
        weights = {name: torch.randn_like(tensor) * 0.3 for name, tensor in module.state_dict().items()}
        torch.save(
            {"state_dict": {f"_orig_mod.module.{name}": tensor for name, tensor in weights.items()}}, "hierarchical.pt"
        )
        torch.save(weights, "plain.pt")
        yield folder
    sys.modules.pop("hierarchical", None)


@pytest.fixture(scope="module")
def exported(workshop: Path) -> Bundle:
    """The page's two commands, as they are written there."""
    commands = next(text for kind, text in BLOCKS if kind == "shell")
    for command in commands.strip().splitlines():
        assert main(shlex.split(command)[1:]) == 0, command
    return open_bundle(workshop / "hierarchical-bundle")


def test_the_page_runs_and_the_bundle_answers_as_the_module(exported: Bundle, workshop: Path) -> None:
    module = importlib.import_module("hierarchical").make().eval()
    module.load_state_dict(torch.load(workshop / "plain.pt"))
    with torch.no_grad():
        expected = module(torch.from_numpy(PIXELS)).numpy()
    assert np.abs(expected).max() > 0.1
    np.testing.assert_allclose(Session(exported.read("model.onnx")).run(PIXELS), expected, rtol=0, atol=1e-5)


def test_both_attentions_stay_one_node(exported: Bundle) -> None:
    model = onnx.load_model_from_string(exported.read("model.onnx"))
    custom = Counter(node.op_type for node in model.graph.node if node.domain == "gaussport")
    assert custom == {"SeparableGaussianFilter": 1, "LatentMemoryRouting": 1}


def test_the_manifest_says_whose_it_is(exported: Bundle) -> None:
    manifest = exported.manifest
    assert (manifest.family, manifest.config) == ("module", {"module": "hierarchical:make"})
    assert (manifest.preprocessing.size, manifest.preprocessing.resize_shorter) == ((64, 64), 72)
    assert manifest.provenance.weights_key == "state_dict"
    assert manifest.provenance.assumed == ("preprocessing.interpolation", "labels")


def test_verify_never_imports_what_a_bundle_names(exported: Bundle, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["verify", str(exported.path), "--checkpoint", "hierarchical.pt"]) == 1
    assert "it was made from hierarchical:make, give that with --model" in capsys.readouterr().out


def test_the_page_from_python(workshop: Path) -> None:
    code = next(text for kind, text in BLOCKS if kind == "python" and "export_module" in text)
    torch.manual_seed(1)
    exec(compile(code, "own-model.md", "exec"), {})
    manifest = open_bundle(workshop / "from-python").manifest
    assert (manifest.name, manifest.labels[9], manifest.provenance.assumed) == ("hierarchical", "class 9", ())


@pytest.fixture(scope="module")
def with_metadata(workshop: Path) -> Bundle:
    """The page's model of two inputs, by the page's two commands."""
    source = next(text for kind, text in BLOCKS if kind == "python" and text.startswith("# with_metadata.py"))
    (workshop / "with_metadata.py").write_text(source, encoding="utf-8")
    torch.manual_seed(2)
    module = importlib.import_module("with_metadata").make()
    torch.save({name: torch.randn_like(tensor) * 0.3 for name, tensor in module.state_dict().items()}, "with_metadata.pt")
    commands = next(text for kind, text in BLOCKS if kind == "shell" and "with-metadata" in text)
    for command in commands.strip().splitlines():
        assert main(shlex.split(command)[1:]) == 0, command
    return open_bundle(workshop / "with-metadata")


def test_the_page_of_two_inputs_is_served(with_metadata: Bundle, workshop: Path) -> None:
    (spec,) = with_metadata.manifest.further_inputs
    assert (spec.name, spec.shape, spec.low, spec.high) == ("metadata", ("batch", 3), -1, 1)
    image = picture(3)
    (workshop / "picture.png").write_bytes(encoded(image))
    code = next(text for kind, text in BLOCKS if kind == "python" and "tritonclient" in text)
    names: dict[str, Any] = {}
    with running(with_metadata.path) as server:
        here = code.replace("127.0.0.1:8000", server.url.removeprefix("http://"))
        exec(compile(here, "own-model.md", "exec"), names)
    module = importlib.import_module("with_metadata").make().eval()
    module.load_state_dict(torch.load("with_metadata.pt"))
    pixels = torch.from_numpy(to_pixels(image, with_metadata.manifest.preprocessing))[None]
    with torch.no_grad():
        expected = module(pixels, torch.tensor([[0.4, -0.2, 0.75]])).numpy()
    assert np.abs(expected).max() > 0.1
    np.testing.assert_allclose(names["logits"], expected, rtol=0, atol=1e-4)


# Refusals

PICTURES = Preprocessing(size=(8, 8))


class Small(nn.Module):
    def __init__(self, answer: Callable[[Tensor], object]) -> None:
        super().__init__()
        self.answer = answer
        self.weight = nn.Parameter(torch.ones(1))

    def forward(self, pixels: Tensor) -> object:
        return self.answer(pixels)


class Two(nn.Module):
    def forward(self, pixels: Tensor, mask: Tensor) -> Tensor:
        return pixels.flatten(1) * mask


@pytest.mark.parametrize(
    ("module", "words"),
    [
        (Small(lambda pixels: pixels), r"gives \[1, 3, 8, 8\] for one picture but must give logits"),
        (Small(lambda pixels: (pixels, pixels)), "gives tuple for one picture"),
        (Small(lambda pixels: 1 / 0), r"fails on pixels of shape \[1, 3, 8, 8\]: ZeroDivisionError: division by zero"),
        (Two(), "asks for pixels and mask: show what is beside the pixels with example_inputs"),
    ],
)
def test_a_module_that_gives_no_logits(module: nn.Module, words: str) -> None:
    with pytest.raises(ExportError, match=words) as caught:
        trained_module(module, PICTURES)
    assert "\n" not in str(caught.value)


def test_labels_must_be_as_many_as_logits() -> None:
    with pytest.raises(ConfigurationError, match="2 labels were given for Small, but its head has 192 classes"):
        trained_module(Small(lambda pixels: pixels.flatten(1)), PICTURES, ["cat", "dog"])


@pytest.mark.parametrize(
    ("factory", "error", "words"),
    [
        ("hierarchical", UsageError, "must be package.module:factory"),
        ("hierarchical:make()", UsageError, "must be package.module:factory"),
        ("../evil:make", UsageError, "must be package.module:factory"),
        ("not_there:make", ExportError, "not_there cannot be imported: ModuleNotFoundError"),
        ("hierarchical:other", ExportError, "hierarchical has no other"),
        ("hierarchical:torch", ExportError, "is a module but must be a function"),
        ("hierarchical:Block", ExportError, "hierarchical:Block fails: TypeError"),
        ("os:getcwd", ExportError, "makes a str but must make a torch.nn.Module"),
    ],
)
def test_a_factory_that_is_none(factory: str, error: type[GaussportError], words: str, workshop: Path) -> None:
    with pytest.raises(error, match=words):
        made_by(factory)


def test_weights_that_are_not_the_modules(workshop: Path, tmp_path: Path) -> None:
    weights = torch.load("plain.pt")
    cases: list[tuple[dict[str, Tensor], type[GaussportError], str]] = [
        ({k: v for k, v in weights.items() if k != "token"}, CheckpointError, r"it lacks 1 of its \d+ \(token\)"),
        ({**weights, "extra": torch.ones(1)}, CheckpointError, r"it has 1 that it does not know \(extra\)"),
        ({**weights, "head.bias": torch.ones(11)}, ConfigurationError, r"head\.bias has shape \(11,\) .* but \(10,\)"),
        ({**weights, "head.bias": torch.full((10,), torch.nan)}, CheckpointError, r"head\.bias .* 10 of 10 numbers .* NaN"),
    ]
    wishes = Wishes(pictures=PictureWishes(crop=(64, 64)))
    for content, error, words in cases:
        torch.save(content, tmp_path / "a.pt")
        with pytest.raises(error, match=words):
            read_module(tmp_path / "a.pt", "hierarchical:make", wishes=wishes)


def test_pictures_of_no_known_size_are_asked_for(workshop: Path) -> None:
    with pytest.raises(ConfigurationError, match=r"nobody says how large the pictures of plain\.pt are: give --crop"):
        read_module(workshop / "plain.pt", "hierarchical:make")


def test_counters_and_prefixes_of_the_module_stay(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A module whose own names begin with `net.`, with the whole numbers that batch normalisation keeps."""
    (tmp_path / "own_net.py").write_text(
        "from torch import nn\n"
        "class Net(nn.Module):\n"
        "    def __init__(self):\n"
        "        super().__init__()\n"
        "        self.net = nn.Sequential(nn.Conv2d(3, 4, 8), nn.BatchNorm2d(4), nn.Flatten())\n"
        "    def forward(self, pixels):\n"
        "        return self.net(pixels)\n"
    )
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "path", list(sys.path))
    module = made_by("own_net:Net")
    torch.save({f"module.{name}": tensor for name, tensor in module.state_dict().items()}, "net.pt")
    found = read_module(Path("net.pt"), "own_net:Net", wishes=Wishes(pictures=PictureWishes(crop=(8, 8))))
    assert all(torch.equal(found.state_dict[name], tensor) for name, tensor in module.state_dict().items())
