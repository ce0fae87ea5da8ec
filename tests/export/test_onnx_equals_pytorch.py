"""The exported graph answers as the module does, whatever the batch size and however the pixels lie in memory."""

import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import onnx.checker
import pytest
from numpy.typing import NDArray

from gaussport.errors import ExportError
from gaussport.export.proof import inlined
from gaussport.export.session import Session

TOLERANCE = 2e-5  # of logits that are about 1; see gaussport.export.tolerance


@pytest.mark.parametrize("batch", [1, 2, 3, 7, 16])
def test_each_row_equals_pytorchs(exported: Any, batch: int) -> None:
    pixels = exported.pixels(batch, seed=batch)
    np.testing.assert_allclose(exported.onnx_answer(pixels), exported.torch_answer(pixels), rtol=0, atol=TOLERANCE)


def test_weights_are_far_from_trivial(exported: Any) -> None:
    answers = exported.torch_answer(exported.pixels(4))
    assert answers.std(axis=0).min() > 1e-2  # the answer depends on the picture, by far more than the tolerance


@pytest.mark.parametrize(
    "layout",
    [
        pytest.param(lambda x: np.ascontiguousarray(x.transpose(0, 2, 3, 1)).transpose(0, 3, 1, 2), id="channels last"),
        pytest.param(lambda x: np.ascontiguousarray(x[::-1])[::-1], id="negative strides"),
        pytest.param(lambda x: np.repeat(x, 2, axis=3)[:, :, :, ::2], id="every second column"),
        pytest.param(lambda x: np.asfortranarray(x), id="Fortran order"),
    ],
)
def test_layout_in_memory_does_not_matter(
    exports: Callable[[str], Any], layout: Callable[[NDArray[np.float32]], NDArray[np.float32]]
) -> None:
    exported = exports("ssog")
    pixels = exported.pixels(3)
    odd = layout(pixels)
    assert not odd.flags.c_contiguous
    np.testing.assert_array_equal(odd, pixels)
    np.testing.assert_array_equal(exported.onnx_answer(odd), exported.onnx_answer(pixels))


@pytest.mark.parametrize("shape", [(2, 3, 48, 40), (2, 3, 40, 24), (2, 1, 24, 40), (3, 24, 40)])
def test_pictures_of_another_size_are_refused(exports: Callable[[str], Any], shape: tuple[int, ...]) -> None:
    with pytest.raises(ExportError, match="ONNX Runtime fails"):
        exports("ssog").onnx_answer(np.zeros(shape, np.float32))


def test_inlined_equals_function_bodies(exported: Any) -> None:
    pixels = exported.pixels(3)
    model = inlined(exported.data)
    assert not onnx.load_model_from_string(model).functions
    np.testing.assert_allclose(Session(model).run(pixels), exported.onnx_answer(pixels), rtol=0, atol=TOLERANCE)


def test_the_checker_accepts_it(exported: Any) -> None:
    onnx.checker.check_model(exported.model, full_check=True)


def test_a_runtime_that_never_heard_of_us_runs_it(exports: Callable[[str], Any], tmp_path: Path) -> None:
    exported = exports("gma causal")
    (tmp_path / "model.onnx").write_bytes(exported.data)
    np.save(tmp_path / "pixels.npy", exported.pixels(3))
    script = (
        "import sys, numpy, onnxruntime;"
        "session = onnxruntime.InferenceSession('model.onnx', providers=['CPUExecutionProvider']);"
        "numpy.save('logits.npy', session.run(None, {'pixels': numpy.load('pixels.npy')})[0]);"
        "sys.exit(any(name.split('.')[0] in ('gaussport', 'torch', 'onnx') for name in sys.modules))"
    )
    subprocess.run([sys.executable, "-c", script], cwd=tmp_path, check=True)
    expected = exported.torch_answer(exported.pixels(3))
    np.testing.assert_allclose(np.load(tmp_path / "logits.npy"), expected, rtol=0, atol=TOLERANCE)
