"""`explain.onnx` is small, has no weights, and tells what plain numpy finds in the safetensors file."""

from collections.abc import Callable

import numpy as np
import onnx
import pytest
from numpy.typing import NDArray

from gaussport.errors import BundleError
from gaussport.export.bundle.manifest import EXPLAIN_FILE, MODEL_FILE, FileRecord, Manifest
from gaussport.export.bundle.store import Bundle, open_bundle, writing_bundle
from gaussport.export.explanation.graph import explaining
from gaussport.models import zoo
from gaussport.onnx_runtime import onnxruntime
from gaussport.serving.explain.explainer import Explainer
from tests.explain.conftest import DEPTH
from tests.explain.plain_numpy import layers_of

Bundles = Callable[..., Bundle]
Pixels = NDArray[np.float32]
ZOO = pytest.mark.parametrize("name", ["mnist-ssog", "mnist-gma"])


@pytest.mark.parametrize("precision", ["fp32", "bf16", "int8"])
@ZOO
def test_it_adds_less_than_a_twentieth(bundles: Bundles, name: str, precision: str) -> None:
    files = bundles(name, precision).manifest.files
    assert 0 < files[EXPLAIN_FILE].bytes < 0.05 * files[MODEL_FILE].bytes


@ZOO
def test_its_numbers_are_those_of_plain_numpy(bundles: Bundles, pixels: Pixels, name: str) -> None:
    explained = Explainer(bundles(name), threads=1).run(pixels)
    for index in range(len(pixels)):
        expected, logits = layers_of(zoo.path(name), pixels[index], DEPTH[name])
        np.testing.assert_allclose(explained.logits[index], logits, rtol=0, atol=1e-5 * np.abs(logits).max())
        assert len(explained.layers) == len(expected) == DEPTH[name]
        for layer, wanted in zip(explained.layers, expected, strict=True):
            for key, tensor in layer.tensors.items():
                found = np.asarray(tensor if tensor.ndim == wanted[key].ndim else tensor[index], dtype=np.float64)
                scale = max(1.0, float(np.abs(wanted[key]).max()))
                np.testing.assert_allclose(found, wanted[key], rtol=0, atol=1e-5 * scale, err_msg=f"{layer.name} {key}")


@ZOO
def test_implied_rows_sum_as_they_must_and_reproduce_the_layers_output(bundles: Bundles, pixels: Pixels, name: str) -> None:
    views = Explainer(bundles(name), threads=1).run(pixels).views(1)
    expected, _ = layers_of(zoo.path(name), pixels[1], DEPTH[name])
    for view, wanted in zip(views, expected, strict=True):
        H, W = view.grid
        value = wanted["value"].reshape(H, W, view.heads, -1)
        output = wanted["output"].reshape(value.shape)
        sums = np.ones((H, W, view.heads))
        if "mass" in wanted:
            norm = (wanted["query_responsibility"] * wanted["mass"]).sum(-1).reshape(H, W, view.heads)
            sums = norm / (norm + 1e-6)
        for head in range(view.heads):
            rows = np.array([[view.row(head, (i, w)) for w in range(W)] for i in range(H)])
            np.testing.assert_allclose(rows.sum(axis=(2, 3)), sums[..., head], rtol=0, atol=1e-5)
            mixed = np.einsum("iwjk,jkd->iwd", rows, value[:, :, head])
            np.testing.assert_allclose(mixed, output[:, :, head], rtol=0, atol=1e-5 * max(1.0, np.abs(output).max()))


@ZOO
def test_appended_to_the_model_it_is_a_whole_one_for_any_reader(bundles: Bundles, pixels: Pixels, name: str) -> None:
    model = bundles(name).read(MODEL_FILE)
    whole = model + bundles(name).read(EXPLAIN_FILE)
    onnx.checker.check_model(onnx.load_model_from_string(whole), full_check=True)
    sessions = [onnxruntime.InferenceSession(part, providers=["CPUExecutionProvider"]) for part in (model, whole)]
    expected, found = (session.run(["logits"], {"pixels": pixels})[0] for session in sessions)
    np.testing.assert_allclose(found, expected, rtol=0, atol=1e-5)


@ZOO
def test_bfloat16_is_explained_in_float32_with_the_weights_of_the_bundle(
    bundles: Bundles, pixels: Pixels, name: str
) -> None:
    """The oracle: the same weights as numbers, rounded by onnx, in the graph of the float32 bundle."""
    narrow = onnx.load_model_from_string(bundles(name, "bf16").read(MODEL_FILE))
    kept = {t.name: onnx.numpy_helper.to_array(t).astype(np.float32) for t in narrow.graph.initializer}
    wide = onnx.load_model_from_string(bundles(name).read(MODEL_FILE))
    for tensor in wide.graph.initializer:
        if tensor.name in kept and tensor.data_type == onnx.TensorProto.FLOAT:
            tensor.CopyFrom(onnx.numpy_helper.from_array(kept[tensor.name], tensor.name))
    explained = Explainer(bundles(name, "bf16"), threads=1).run(pixels)
    session = onnxruntime.InferenceSession(wide.SerializeToString(), providers=["CPUExecutionProvider"])
    expected = session.run(["logits"], {"pixels": pixels})[0]
    np.testing.assert_allclose(explained.logits, expected, rtol=0, atol=1e-5 * np.abs(expected).max())
    for view in explained.views(1):
        sums = [view.affinity(head, row).sum(axis=(1, 2)) for head in range(view.heads) for row in range(view.grid[0])]
        np.testing.assert_allclose(sums, 1, rtol=0, atol=1e-4)


def test_a_model_without_our_operators_has_none() -> None:
    node = onnx.helper.make_node("Identity", ["pixels"], ["logits"])
    ends = [onnx.helper.make_tensor_value_info(end, 1, ["batch", 3]) for end in ("pixels", "logits")]
    assert explaining(onnx.helper.make_model(onnx.helper.make_graph([node], "plain", ends[:1], ends[1:])), {}, "") is None


def test_a_bundle_without_it_stays_valid_and_says_why_it_cannot_be_explained(bundles: Bundles) -> None:
    older = _changed(bundles("mnist-gma"), {EXPLAIN_FILE: None})
    assert open_bundle(older.path).manifest.model_sha256
    with pytest.raises(
        BundleError, match=r"has no explain.onnx: its attention is not Gaussian, or an older gaussport wrote it"
    ):
        Explainer(older)


def test_an_explanation_of_another_model_is_refused(bundles: Bundles) -> None:
    """It is a part of one model.onnx: with another one before it, it would tell numbers of nobody."""
    model = bundles("mnist-gma").read(MODEL_FILE)
    changed = bytearray(model)
    changed[len(model) // 2] ^= 1
    with pytest.raises(BundleError, match=r"was made for another model.onnx than the one beside it: export"):
        Explainer(_changed(bundles("mnist-gma"), {MODEL_FILE: bytes(changed)}))


def test_a_flipped_bit_is_found(bundles: Bundles) -> None:
    bundle = bundles("mnist-gma")
    damaged = _changed(bundle, {})
    path = damaged.path / EXPLAIN_FILE
    path.write_bytes(path.read_bytes()[:-1] + b"?")
    with pytest.raises(BundleError, match=r"explain.onnx in .* differs from its hash"):
        Explainer(damaged)


def _changed(bundle: Bundle, files: dict[str, bytes | None]) -> Bundle:
    """A copy beside it, whole by its hashes, with other files; None takes one away."""
    number = len(list(bundle.path.parent.iterdir()))
    path = bundle.path.with_name(f"changed{number}")
    with writing_bundle(path) as draft:
        for name in bundle.manifest.files:
            content = files.get(name, bundle.read(name))
            if content is not None:
                (draft.folder / name).write_bytes(content)

        def manifest(listed: dict[str, FileRecord]) -> Manifest:
            return bundle.manifest.model_copy(update={"files": listed})

        draft.finish(manifest)
    return open_bundle(path)
