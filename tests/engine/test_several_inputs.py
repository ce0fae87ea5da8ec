"""An engine of a model that reads more than pictures: every input has its shapes in the profile, and stands in the model
that ONNX Runtime opens."""

from pathlib import Path

import onnx
import pytest

from gaussport.export.bundle.engines import CONTEXT_FILE, ENGINES_FOLDER
from gaussport.export.bundle.manifest import TensorSpec
from gaussport.export.engine.build import build_engines
from gaussport.export.engine.wish import Wish
from gaussport.export.work import tensor_spec
from tests.serving.several import write_several


@pytest.mark.usefixtures("rtx")
def test_every_input_is_in_profile_and_context(tmp_path: Path) -> None:
    wish = Wish("tensorrt-rtx", (86,), least_batch=2, best_batch=4, most_batch=8)
    bundle, (built,) = build_engines(write_several(tmp_path / "several"), wish)
    model = onnx.load_model_from_string(bundle.read(f"{ENGINES_FOLDER}/{built.record.name}/{CONTEXT_FILE}"))
    inputs = [TensorSpec(name=spec.name, dtype=spec.dtype, shape=spec.shape) for spec in bundle.manifest.inputs]
    assert [tensor_spec(value) for value in model.graph.input] == inputs
    assert list(model.graph.node[0].input) == [spec.name for spec in inputs]
    assert built.record.batches == (2, 4, 8)
