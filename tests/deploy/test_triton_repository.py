"""`gaussport triton-repository`: Triton's own parser takes the configuration, and model.py answers as the runtime does.

A real Triton serves the repository in `benchmarks/triton_repository.py`; here its Python module is played by a few lines.
"""

import importlib.util
import io
import json
import sys
from pathlib import Path
from types import ModuleType
from typing import Any

import numpy as np
import pytest
import tritonclient
from google.protobuf import text_format
from google.protobuf.json_format import MessageToDict
from hypothesis import given
from hypothesis import strategies as st
from PIL import Image

from gaussport.cli import main
from gaussport.errors import ExportError, UsageError
from gaussport.export.bundle.engines import EngineRecord
from gaussport.export.bundle.store import open_bundle
from gaussport.export.triton_repository.config import config
from gaussport.export.triton_repository.layout import write_model
from gaussport.export.triton_repository.wish import Wish
from gaussport.serving.runtime import Runtime
from tests.deploy.conftest import LABELS, SIDE
from tests.serving.several import expected, random_inputs, write_several


def load(name: str, path: Path) -> ModuleType:
    spec = importlib.util.spec_from_file_location(name, path)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


@pytest.fixture(scope="module")
def model_config() -> Any:
    """NVIDIA's own message type, without the package beside it that wants grpc."""
    return load("model_config_pb2", Path(tritonclient.__file__).parent / "grpc" / "model_config_pb2.py").ModelConfig


class FakeTriton(ModuleType):
    """The names of triton_python_backend_utils that model.py uses."""

    class TritonError(Exception):
        INVALID_ARG = 3

        def __init__(self, message: str, code: int) -> None:
            super().__init__(message)

    class Tensor:
        def __init__(self, name: str, array: Any) -> None:
            self.name, self.array = name, array

        @classmethod
        def from_dlpack(cls, name: str, array: Any) -> "FakeTriton.Tensor":
            return cls(name, np.from_dlpack(array))

        def __dlpack__(self, **words: Any) -> Any:
            return self.array.__dlpack__(**words)

        def __dlpack_device__(self) -> Any:
            return self.array.__dlpack_device__()

    class InferenceResponse:
        def __init__(self, output_tensors: Any = (), error: Exception | None = None) -> None:
            self.outputs, self.error = {each.name: each.array for each in output_tensors}, error

    @staticmethod
    def get_input_tensor_by_name(request: dict[str, Any], name: str) -> Any:
        return None if name not in request else FakeTriton.Tensor(name, request[name])


def _initialized(bundle: Path, tmp_path: Path, model_config: Any, monkeypatch: pytest.MonkeyPatch) -> Any:
    """The written model.py, initialized as Triton does it."""
    monkeypatch.setitem(sys.modules, "triton_python_backend_utils", FakeTriton("triton_python_backend_utils"))
    written = write_model(bundle, tmp_path / "models", Wish(threads=1)).model
    message = text_format.Parse((written / "config.pbtxt").read_text(), model_config())
    made = load("model", written / "1" / "model.py").TritonPythonModel()
    made.initialize(
        {
            "model_config": json.dumps(MessageToDict(message, preserving_proto_field_name=True)),
            "model_repository": str(written),
            "model_version": "1",
            "model_instance_kind": "CPU",
            "model_instance_device_id": "0",
        }
    )
    return made


@pytest.fixture
def model(bundle: Path, tmp_path: Path, model_config: Any, monkeypatch: pytest.MonkeyPatch) -> Any:
    return _initialized(bundle, tmp_path, model_config, monkeypatch)


def test_triton_parses_the_configuration(bundle: Path, tmp_path: Path, model_config: Any) -> None:
    for backend in ("python", "onnxruntime"):
        written = write_model(bundle, tmp_path / backend, Wish(backend, max_batch=4, max_delay_ms=1.5, instances=2))
        message = text_format.Parse((written.model / "config.pbtxt").read_text(), model_config())
        assert (message.name, message.backend, message.max_batch_size) == ("tiny", backend, 4)
        assert list(message.input[0].dims) == [3, SIDE, SIDE]
        assert list(message.output[0].dims) == [len(LABELS)]
        assert message.dynamic_batching.max_queue_delay_microseconds == 1500
        assert message.instance_group[0].count == 2
        assert (written.model / message.output[0].label_filename).read_text().splitlines() == list(LABELS)


@given(st.text(st.characters(exclude_categories=["Cs"])))
def test_any_text_survives_the_configuration(bundle: Path, model_config: Any, text: str) -> None:
    manifest = open_bundle(bundle).manifest
    message = text_format.Parse(config(manifest, Wish(), 8, {"engine": text}), model_config())
    assert message.parameters["engine"].string_value == text


def test_model_answers_as_the_runtime_does(model: Any, bundle: Path) -> None:
    rng = np.random.default_rng(1)
    requests = [{"pixels": rng.normal(size=(rows, 3, SIDE, SIDE)).astype(np.float32)} for rows in (1, 3, 9)]
    runtime = Runtime(open_bundle(bundle), threads=1)
    for request, answer in zip(requests, model.execute(requests), strict=True):
        assert answer.error is None
        np.testing.assert_allclose(
            answer.outputs["logits"], np.concatenate([runtime.run(row[None]) for row in request["pixels"]])
        )
        np.testing.assert_allclose(answer.outputs["probabilities"].sum(1), 1, rtol=1e-6)


def test_a_model_of_several_inputs(tmp_path: Path, model_config: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    """Triton knows no row without an axis: an input [batch] is sent as [batch, 1], and reaches the model as [batch]."""
    several = write_several(tmp_path / "several")
    for backend in ("python", "onnxruntime"):
        written = write_model(several, tmp_path / backend, Wish(backend))
        message = text_format.Parse((written.model / "config.pbtxt").read_text(), model_config())
        found = {each.name: (each.data_type, list(each.dims), each.optional) for each in message.input}
        found.pop("image", None)
        alone = backend == "python"
        assert found == {
            "pixels": (11, [3, 4, 4], alone),
            "metadata": (11, [2, 2], False),
            "kind": (9, [1], False),
            "keep": (1, [1], False),
        }
        kind = next(each for each in message.input if each.name == "kind")
        assert kind.HasField("reshape")
        assert list(kind.reshape.shape) == []
    model = _initialized(several, tmp_path, model_config, monkeypatch)
    requests = [random_inputs(rows, seed) for seed, rows in enumerate((2, 1, 7))]
    for request, answer in zip(requests, model.execute(requests), strict=True):
        np.testing.assert_allclose(answer.outputs["logits"], expected(request), atol=1e-5)


def test_bad_requests_fail_alone(model: Any) -> None:
    picture = io.BytesIO()
    Image.new("RGB", (20, 20), "red").save(picture, "PNG")
    good = np.frombuffer(picture.getvalue(), np.uint8)[None]
    zeros = np.zeros((1, 3, SIDE, SIDE), np.float32)
    requests: list[dict[str, Any]] = [
        {"image": good},
        {"image": np.frombuffer(b"no picture", np.uint8)[None]},
        {"pixels": np.full_like(zeros, np.nan)},
        {"pixels": zeros, "image": good},
        {},
        {"pixels": zeros},
    ]
    answers = model.execute(requests)
    assert [answer.error is None for answer in answers] == [True, False, False, False, False, True]
    assert "not a picture" in str(answers[1].error)
    assert all(answer.error is not None for answer in model.execute(requests[1:5]))


def test_the_onnxruntime_backend_gets_the_model_alone(bundle: Path, tmp_path: Path) -> None:
    written = write_model(bundle, tmp_path, Wish("onnxruntime"))
    assert (written.model / "1" / "model.onnx").read_bytes() == (bundle / "model.onnx").read_bytes()
    assert sorted(path.name for path in written.model.rglob("*") if path.is_file()) == [
        "config.pbtxt",
        "labels.txt",
        "model.onnx",
    ]


def with_engine(bundle: Path, destination: Path) -> Path:
    """The bundle with a TensorRT engine of nonsense."""
    from gaussport.export.bundle.store import writing_bundle

    manifest = open_bundle(bundle).manifest
    record = EngineRecord(
        builder="tensorrt",
        builder_version="10.16.0",
        architecture=90,
        precision="fp16",
        batches=(1, 4, 4),
        model_sha256=manifest.model_sha256,
        plugin_layers=1,
    )
    with writing_bundle(destination) as draft:
        (draft.folder / "model.onnx").write_bytes((bundle / "model.onnx").read_bytes())
        home = draft.folder / "engines" / record.name
        home.mkdir(parents=True)
        for name in ("model.engine", "model_ctx.onnx", "libgaussport_plugins.so", "layers.json"):
            (home / name).write_text(name)
        draft.finish(lambda files: manifest.model_copy(update={"files": files, "engines": {record.name: record}}))
    return destination


def test_the_tensorrt_backend_gets_the_engine_and_says_how_to_load_the_plugins(
    bundle: Path, tmp_path: Path, model_config: Any
) -> None:
    written = write_model(with_engine(bundle, tmp_path / "engined"), tmp_path / "models", Wish("tensorrt"))
    assert (written.model / "1" / "model.plan").read_text() == "model.engine"
    assert written.command[-1] == f"--backend-config=tensorrt,plugins={written.model / 'libgaussport_plugins.so'}"
    message = text_format.Parse((written.model / "config.pbtxt").read_text(), model_config())
    assert message.max_batch_size == 4  # the engine's, not the bundle's 8
    assert message.instance_group[0].kind == 1  # KIND_GPU


def test_other_models_of_the_repository_stay(bundle: Path, tmp_path: Path) -> None:
    (tmp_path / "models" / "theirs").mkdir(parents=True)
    write_model(bundle, tmp_path / "models", Wish())
    write_model(bundle, tmp_path / "models", Wish("onnxruntime"), overwrite=True)
    assert sorted(path.name for path in (tmp_path / "models").iterdir()) == ["theirs", "tiny"]


@pytest.mark.parametrize(
    ("wish", "error"),
    [
        (Wish("onnxruntime", threads=2), UsageError),
        (Wish("onnxruntime", provider="tensorrt"), UsageError),
        (Wish("tensorrt", provider="cuda"), UsageError),
        (Wish(engine="some"), UsageError),
        (Wish(max_batch=9), UsageError),
        (Wish(instances=0), UsageError),
        (Wish(max_delay_ms=-1), UsageError),
        (Wish("tensorrt"), ExportError),
        (Wish("tensorrt", engine="some"), ExportError),
    ],
)
def test_wishes_that_cannot_be_leave_nothing(bundle: Path, tmp_path: Path, wish: Wish, error: type[Exception]) -> None:
    with pytest.raises(error):
        write_model(bundle, tmp_path / "models", wish)
    assert not (tmp_path / "models").exists()


def test_command_says_how_to_start_triton(bundle: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    words = ["triton-repository", str(bundle), "-o", str(tmp_path / "models")]
    assert main([*words, "--python-path", "/a:/b"]) == 0
    assert capsys.readouterr().out.splitlines()[-1] == f"next: tritonserver --model-repository {tmp_path / 'models'}"
    assert "sys.path[:0] = ['/a', '/b']" in (tmp_path / "models" / "tiny" / "1" / "model.py").read_text()
    assert main(words) == 2
    assert "--overwrite" in capsys.readouterr().err
    (tmp_path / "file").touch()
    assert main([*words[:3], str(tmp_path / "file")]) == 1
    assert "cannot be written" in capsys.readouterr().err
