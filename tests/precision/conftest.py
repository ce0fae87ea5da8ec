"""The zoo's models as float32 graphs, traced once."""

from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
import torch

from gaussport.export.onnx_export import export_onnx, pictures_of
from gaussport.models.checkpoint import build_classifier, read_checkpoint
from tests.precision.subjects import Zoo

ZOO = Path(__file__).parents[2] / "models" / "zoo"
NAMES = ("mnist-ssog", "mnist-gma")


@pytest.fixture(autouse=True, scope="session")
def _one_thread() -> Iterator[None]:
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(before)


@pytest.fixture(autouse=True)
def _own_cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))


@pytest.fixture(scope="session")
def zoo() -> Callable[[str], Zoo]:
    """`zoo(name)`, each made once."""
    made: dict[str, Zoo] = {}

    def get(name: str) -> Zoo:
        if name not in made:
            path = ZOO / f"{name}.safetensors"
            checkpoint = read_checkpoint(path)
            module = build_classifier(checkpoint).eval()
            model = export_onnx(module, [pictures_of(checkpoint.preprocessing.tensor_shape)])
            made[name] = Zoo(path, checkpoint, module, model)
        return made[name]

    return get


@pytest.fixture(params=NAMES)
def each(request: pytest.FixtureRequest, zoo: Callable[[str], Zoo]) -> Zoo:
    return zoo(request.param)


@pytest.fixture
def ssog(zoo: Callable[[str], Zoo]) -> Zoo:
    return zoo("mnist-ssog")
