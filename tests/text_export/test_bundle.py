"""The bundle of a causal classifier of bytes: what is in it, and that its graphs answer at any batch and length."""

import subprocess
import sys

import numpy as np
import onnx
import onnx.shape_inference
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from gaussport.export.bundle.manifest import MODEL_FILE, STEP_FILE
from gaussport.export.bundle.store import Bundle
from gaussport.export.session import Session
from gaussport.models.sequence import SequenceClassifier
from tests.sequence.numpy_forward import logits
from tests.text_export.conftest import LONGEST, answered

PAD = 256


def test_the_manifest_says_what_the_model_reads_and_what_a_stream_keeps(bundle: Bundle, module: SequenceClassifier) -> None:
    manifest = bundle.manifest
    assert manifest.takes_text
    assert (manifest.tokenization.max_tokens, manifest.tokenization.stride) == (LONGEST, LONGEST // 2)
    assert (manifest.input.name, manifest.input.dtype, manifest.input.shape) == ("tokens", "int64", ("batch", "length"))
    assert {"model.onnx", "step.onnx", "explain.onnx", "report.json"} <= set(manifest.files)
    assert manifest.stream is not None
    state = module.initial_state(1)
    assert {part.name: part.shape[1:] for part in manifest.stream.state} == {n: tuple(t.shape[1:]) for n, t in state.items()}
    assert manifest.stream.bytes_per_stream == sum(t.numel() * t.element_size() for t in state.values())


@pytest.mark.parametrize("file", [MODEL_FILE, STEP_FILE])
def test_graphs_pass_the_full_checker_with_every_axis_open(bundle: Bundle, file: str) -> None:
    model = onnx.load_model_from_string(bundle.read(file))
    onnx.checker.check_model(model, full_check=True)
    onnx.shape_inference.infer_shapes(model, check_type=True, strict_mode=True, data_prop=True)
    axes = [axis.dim_param for axis in model.graph.input[0].type.tensor_type.shape.dim]
    assert all(axes)
    assert len(set(axes)) == 2


def test_the_step_has_standard_operators_alone_and_the_names_of_its_parts(bundle: Bundle) -> None:
    model = onnx.load_model_from_string(bundle.read(STEP_FILE))
    assert {node.domain for node in model.graph.node} <= {"", "ai.onnx"}
    assert not model.functions
    assert bundle.manifest.stream is not None
    parts = [part.name for part in bundle.manifest.stream.state]
    assert [value.name for value in model.graph.input] == ["tokens", *(f"state.{name}" for name in parts)]
    assert [value.name for value in model.graph.output] == ["logits", *(f"next.{name}" for name in parts)]


@given(data=st.data(), batch=st.integers(1, 5), length=st.integers(1, 200))
@settings(max_examples=25, deadline=None)
def test_any_batch_of_any_length_is_answered_as_in_pytorch(
    sessions: dict[str, Session], module: SequenceClassifier, data: st.DataObject, batch: int, length: int
) -> None:
    tokens = np.random.default_rng([batch, length]).integers(0, 256, (batch, length))
    for row in tokens:
        row[data.draw(st.integers(1, length)) :] = PAD
    np.testing.assert_allclose(sessions[MODEL_FILE].run({"tokens": tokens}), answered(module, tokens), atol=2e-5)


@pytest.fixture(scope="session")
def sessions(bundle: Bundle) -> dict[str, Session]:
    return {MODEL_FILE: Session(bundle.read(MODEL_FILE))}


def test_an_independent_forward_in_float64_agrees(bundle: Bundle, module: SequenceClassifier) -> None:
    weights = {name: tensor.double().numpy() for name, tensor in module.state_dict().items()}
    document = list(b"A manual page \x00 of some length, in \xff bytes, that is longer than one chunk of the scan: " * 2)
    found = Session(bundle.read(MODEL_FILE)).run({"tokens": np.array([document])})[0]
    config = module.config
    exact = logits(weights, document, True, 1e-6, 1e-4, config.norm_epsilon)
    np.testing.assert_allclose(found, exact, atol=5e-5)


@pytest.mark.parametrize("token", [257, 1 << 40, -258])
def test_a_token_outside_the_vocabulary_is_an_error_and_no_crash(bundle: Bundle, token: int) -> None:
    from gaussport.errors import ExportError

    with pytest.raises(ExportError, match="ONNX Runtime fails at batch 1"):
        Session(bundle.read(MODEL_FILE)).run({"tokens": np.array([[7, token]])})


def test_65536_tokens_need_no_array_of_their_square(bundle: Bundle) -> None:
    """Such an array would be 16 GiB of float32; the process may have 2 in all."""
    code = (
        "import resource, sys, numpy as np, onnxruntime as ort\n"
        "options = ort.SessionOptions(); options.intra_op_num_threads = 1\n"
        "session = ort.InferenceSession(sys.argv[1], options, providers=['CPUExecutionProvider'])\n"
        "resource.setrlimit(resource.RLIMIT_AS, (2 << 30, 2 << 30))\n"
        "print(np.isfinite(session.run(None, {'tokens': np.zeros((1, 65536), np.int64)})[0]).all())\n"
    )
    words = [sys.executable, "-c", code, str(bundle.path / MODEL_FILE)]
    done = subprocess.run(words, capture_output=True, text=True, timeout=120, check=False)
    assert done.stdout.strip() == "True", done.stderr
