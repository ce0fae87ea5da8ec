"""Foreign classifiers exported as their users would, fused, and run beside what they were."""

from collections.abc import Callable, Iterator
from pathlib import Path

import onnx
import pytest
import torch

from gaussport.export.fusion.foreign_model import ForeignModel, read_foreign_model
from tests.fusion.foreign.classifier import VisionTransformer
from tests.fusion.foreign.exporting import exported

Foreign = Callable[..., tuple[VisionTransformer, ForeignModel]]


@pytest.fixture(autouse=True, scope="session")
def _one_thread() -> Iterator[None]:
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(before)


@pytest.fixture
def foreign(tmp_path: Path) -> Foreign:
    """`foreign(attention, exporter, opset, edit, **sizes)`: a seeded classifier, and its model as fusion takes it."""

    def make(
        attention: Callable[..., torch.nn.Module],
        exporter: str = "torchscript",
        opset: int = 18,
        edit: Callable[[onnx.ModelProto], onnx.ModelProto] = lambda model: model,
        **sizes: object,
    ) -> tuple[VisionTransformer, ForeignModel]:
        with torch.random.fork_rng(devices=[]):
            torch.manual_seed(3)
            module = VisionTransformer(attention, **sizes).eval()  # type: ignore[arg-type]
        path = tmp_path / "foreign.onnx"
        onnx.save(edit(exported(module, module.image, exporter, opset)), path)
        return module, read_foreign_model(path)

    return make
