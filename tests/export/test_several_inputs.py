"""Modules that read more than pictures: proved, verified, blamed and refused like all others."""

import re
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from onnx import numpy_helper
from torch import Tensor, nn

from gaussport.errors import ExportError, ProofError, UsageError
from gaussport.export.bundle.manifest import FileRecord, FurtherInput, Manifest
from gaussport.export.bundle.store import Bundle, open_bundle, writing_bundle
from gaussport.export.example_inputs import further_inputs_of
from gaussport.export.inputs import Inputs
from gaussport.export.model_file import ModelFile, serialize
from gaussport.export.onnx_export import export_onnx
from gaussport.export.own_module import trained_module
from gaussport.export.pipeline import export_module
from gaussport.export.precision.wish import PrecisionWish
from gaussport.export.probes import beside
from gaussport.export.proof import InPyTorch, prove
from gaussport.export.session import Session
from gaussport.export.verification.bisection import first_departure
from gaussport.export.verification.checks import verify_bundle
from gaussport.models.image.preprocess import Preprocessing

PICTURES = Preprocessing(size=(6, 8), channels="L", mean=(0.5,), std=(0.25,))
EXAMPLES = {
    "before": torch.tensor([[-1.0, -1, -1], [3.0, 3, 3]]),
    "after": torch.tensor([[-2.0, 0, 0], [2.0, 0, 0]]),
    "kind": torch.tensor([0, 6]),
    "keep": torch.tensor([[False], [True]]),
}


class Several(nn.Module):
    """A picture, two vectors of one shape, an index and a mask."""

    def __init__(self) -> None:
        super().__init__()
        self.picture, self.first, self.second = nn.Linear(48, 16), nn.Linear(3, 16), nn.Linear(3, 16)
        self.kinds, self.head = nn.Embedding(7, 16), nn.Linear(16, 4)

    def forward(self, image: Tensor, before: Tensor, after: Tensor, kind: Tensor, keep: Tensor, gain: float = 1.0) -> Tensor:
        x = self.picture(image.flatten(1)) + self.first(before) + self.second(after).sin() + self.kinds(kind)
        return torch.as_tensor(self.head(torch.where(keep, x, -x).tanh() * gain))


@pytest.fixture(scope="module")
def module() -> Several:
    torch.manual_seed(3)
    return Several().eval()


@pytest.fixture(scope="module")
def bundle(module: Several, tmp_path_factory: pytest.TempPathFactory) -> Bundle:
    path = tmp_path_factory.mktemp("several") / "bundle"
    return export_module(module, path, PICTURES, example_inputs=EXAMPLES, max_batch=5)


def _inputs(rows: int, seed: int = 0) -> dict[str, np.ndarray[Any, Any]]:
    random = np.random.default_rng(seed)
    return {
        "pixels": random.standard_normal((rows, 1, 6, 8), dtype=np.float32),
        "before": random.uniform(-1, 3, (rows, 3)).astype(np.float32),
        "after": random.uniform(-2, 2, (rows, 3)).astype(np.float32),
        "kind": random.integers(0, 7, rows),
        "keep": random.random((rows, 1)) < 0.5,
    }


def test_the_manifest_says_what_the_model_reads_and_the_answers_are_the_modules(bundle: Bundle, module: Several) -> None:
    manifest = open_bundle(bundle.path).manifest
    assert [(spec.name, spec.dtype, spec.shape) for spec in manifest.inputs] == [
        ("pixels", "float32", ("batch", 1, 6, 8)),
        ("before", "float32", ("batch", 3)),
        ("after", "float32", ("batch", 3)),
        ("kind", "int64", ("batch",)),
        ("keep", "bool", ("batch", 1)),
    ]
    assert [(spec.low, spec.high) for spec in manifest.further_inputs] == [(-1, 3), (-2, 2), (0, 6), (0, 1)]
    inputs = _inputs(4)
    found = Session(bundle.read("model.onnx")).run(dict(reversed(inputs.items())))  # by name, in any order
    np.testing.assert_allclose(found, InPyTorch(module).run(inputs), rtol=0, atol=1e-6)


def test_a_model_of_pictures_alone_writes_no_such_field(bundle: Bundle) -> None:
    assert '"further_inputs"' in bundle.manifest.model_dump_json()
    alone = bundle.manifest.model_copy(update={"further_inputs": ()})
    assert "further_inputs" not in alone.model_dump_json()
    assert Manifest.model_validate_json(alone.model_dump_json()) == alone


def test_verify_passes_alone_and_against_itself(bundle: Bundle) -> None:
    findings = {finding.check: finding for finding in verify_bundle(bundle.path)}
    assert {finding.result for finding in findings.values()} == {"ok"}
    assert "kind int64 [batch], keep bool [batch, 1] → logits" in findings["manifest"].text


def _swapped(model: onnx.ModelProto) -> None:
    """Who reads the one vector reads the other."""
    other = {"before": "after", "after": "before"}
    for node in model.graph.node:
        node.input[:] = [other.get(name, name) for name in node.input]


def _ignoring(name: str) -> Callable[[onnx.ModelProto], None]:
    """Whatever is given, the model reads the example."""

    def change(model: onnx.ModelProto) -> None:
        stored = EXAMPLES[name][:1].numpy()
        model.graph.initializer.append(numpy_helper.from_array(stored, "stuck"))
        for node in model.graph.node:
            node.input[:] = ["stuck" if given == name else given for given in node.input]

    return change


@pytest.mark.parametrize("change", [_swapped, *map(_ignoring, EXAMPLES)], ids=["swapped", *EXAMPLES])
def test_inputs_that_are_confused_or_ignored_fail_the_proof(
    change: Callable[[onnx.ModelProto], None], bundle: Bundle, module: Several
) -> None:
    model = onnx.load_model_from_string(bundle.read("model.onnx"))
    probes = trained_module(module, PICTURES, further_inputs=bundle.manifest.further_inputs).probes
    prove(module, serialize(model), probes, 5).require()
    change(model)
    with pytest.raises(ProofError, match="differs from PyTorch's by"):
        prove(module, serialize(model), probes, 5).require()


def test_the_layer_at_fault_is_found_behind_every_input(bundle: Bundle, module: Several) -> None:
    for layer in ("first", "second"):
        model = onnx.load_model_from_string(bundle.read("model.onnx"))
        weight = next(t for t in model.graph.initializer if t.name.startswith(f"{layer}.weight"))
        weight.CopyFrom(numpy_helper.from_array(-numpy_helper.to_array(weight), weight.name))
        departure = first_departure(module, model, ModelFile(serialize(model)), _inputs(3))
        assert departure is not None
        assert departure.layer == layer


@pytest.mark.parametrize("precision", ["fp16", "int8"])
def test_narrow_precisions(precision: str, module: Several, tmp_path: Path) -> None:
    from PIL import Image

    (tmp_path / "pictures").mkdir()
    for level in (0, 90, 255):
        Image.new("L", (8, 6), level).save(tmp_path / "pictures" / f"{level}.png")
    pictures = str(tmp_path / "pictures") if precision == "int8" else None
    wish = PrecisionWish(precision=precision, calibration_data=pictures)
    made = export_module(module, tmp_path / "b", PICTURES, example_inputs=EXAMPLES, max_batch=3, precision=wish)
    assert made.manifest.precision == precision
    assert [spec.dtype for spec in made.manifest.inputs] == ["float32", "float32", "float32", "int64", "bool"]


def test_labelled_pictures_cannot_measure_it(module: Several, tmp_path: Path) -> None:
    wish = PrecisionWish(precision="fp16", data="mnist")
    with pytest.raises(UsageError, match="this model reads before, after, kind, keep beside them: leave --data out"):
        export_module(module, tmp_path / "b", PICTURES, example_inputs=EXAMPLES, precision=wish)
    assert not (tmp_path / "b").exists()


@given(
    dtype=st.sampled_from(["float32", "int64", "int32", "bool"]),
    shape=st.lists(st.integers(1, 4), max_size=3),
    low=st.integers(-9, 9),
    width=st.integers(1, 9),
    turn=st.integers(0, 20),
)
def test_probes_stay_in_the_range_and_reach_its_ends(dtype: str, shape: list[int], low: int, width: int, turn: int) -> None:
    low, high = (0, 1) if dtype == "bool" else (low, low + width)
    spec = FurtherInput.model_validate({"name": "x", "dtype": dtype, "shape": ("batch", *shape), "low": low, "high": high})
    rows = [beside(spec, turn + n, np.random.default_rng(n)) for n in range(7)]
    assert {(row.dtype.name, row.shape) for row in rows} == {(dtype, tuple(shape))}
    assert (min(row.min() for row in rows), max(row.max() for row in rows)) == (low, high)


# Refusals


@pytest.mark.parametrize(
    ("examples", "words"),
    [
        ({}, "asks for image and before, after, kind, keep: show what is beside the pixels with example_inputs"),
        ({"other": torch.ones(2)}, "shows 'other', but beside image its forward takes before, after, kind, keep, gain"),
        ([1], "example_inputs of m is a list but must be a dict"),
        ({"before": [1.0]}, "the example of before for m is a list but must be a tensor"),
        ({"before": EXAMPLES["before"].double()}, "is float64, but inputs are float32, int64, int32, bool"),
        ({"before": torch.tensor(1.0)}, r"has the shape \[\] but must be \[batch"),
        ({"before": torch.ones(0, 3)}, r"has the shape \[0, 3\]"),
        ({"before": torch.ones(2, 3)}, "goes from 1 to 1: let it have the smallest and the largest number"),
        ({"before": torch.tensor([0.0, torch.inf])}, "goes from 0 to inf"),
        ({"before": torch.tensor([0.0, torch.nan])}, "goes from nan to nan"),
    ],
)
def test_examples_that_show_no_input(examples: Any, words: str, module: Several) -> None:
    given_examples = EXAMPLES | examples if isinstance(examples, dict) and examples else examples
    with pytest.raises(ExportError, match=words) as caught:
        further_inputs_of(module, "m", given_examples)
    assert "\n" not in str(caught.value)


class _Optional(nn.Module):
    def forward(self, image: Tensor, scale: float = 1.0, shift: Tensor | None = None) -> Tensor:
        return image.flatten(1) * scale + (0 if shift is None else shift)


def test_a_gap_in_the_parameters_is_refused() -> None:
    with pytest.raises(ExportError, match="leaves scale out, which comes before shift"):
        further_inputs_of(_Optional(), "m", {"shift": torch.tensor([[0.0], [1.0]])})
    assert further_inputs_of(_Optional(), "m") == ()


class _Taken(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.meta = nn.Linear(48, 2)

    def forward(self, image: Tensor) -> Tensor:
        return torch.as_tensor(self.meta(image.flatten(1)))


def test_a_part_that_the_tracer_would_lose_is_named() -> None:
    with pytest.raises(ExportError, match="the module's part meta has a name that PyTorch's tracer needs: rename it"):
        export_onnx(_Taken(), trained_module(_Taken(), PICTURES).takes)


class _FixedBatch(nn.Module):
    """The vector's batch is one, whatever the pictures' is."""

    def forward(self, image: Tensor, vector: Tensor) -> Tensor:
        return image.flatten(1)[:, :3] + vector.view(1, 3)


def test_an_input_whose_batch_is_its_own_is_refused(tmp_path: Path) -> None:
    with pytest.raises(
        ExportError,
        match=r"fails on a batch of 2: shape .* is invalid .*; it must take any batch",
    ):
        export_module(_FixedBatch(), tmp_path / "b", PICTURES, example_inputs={"vector": torch.rand(2, 3)})


def _listing(manifest: Manifest, files: dict[str, FileRecord]) -> Manifest:
    return manifest.model_copy(update={"files": files})


def test_a_manifest_whose_inputs_are_not_the_graphs_is_told(bundle: Bundle, tmp_path: Path) -> None:
    def without(manifest: Manifest) -> Manifest:
        return manifest.model_copy(update={"further_inputs": manifest.further_inputs[:-1]})

    def reordered(manifest: Manifest) -> Manifest:
        return manifest.model_copy(update={"further_inputs": manifest.further_inputs[::-1]})

    cases = [(without, "has 5 inputs where the manifest states 4"), (reordered, "input is before .* the manifest says keep")]
    for number, (change, words) in enumerate(cases):
        path = tmp_path / str(number)
        with writing_bundle(path) as draft:
            for name in bundle.manifest.files:
                (draft.folder / name).write_bytes(bundle.read(name))
            draft.finish(partial(_listing, change(bundle.manifest)))
        found = {finding.check: finding for finding in verify_bundle(path)}["manifest"]
        assert found.result == "FAILED"
        assert re.search(words, found.text)


def test_batches_of_every_size_run(bundle: Bundle, module: Several) -> None:
    session = Session(bundle.read("model.onnx"))
    whole: Inputs = _inputs(5, seed=1)
    expected = InPyTorch(module).run(whole)
    for rows in range(1, 6):
        found = session.run({name: array[:rows] for name, array in whole.items()})
        np.testing.assert_allclose(found, expected[:rows], rtol=0, atol=1e-6)
