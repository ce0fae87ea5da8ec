"""What the exported graph looks like, and what modules become an error instead of a graph."""

import logging
import warnings
from collections import Counter
from collections.abc import Callable
from typing import Any

import onnx
import pytest
import torch
from onnx import TensorProto
from torch import Tensor, nn

from gaussport.errors import ExportError, UsageError
from gaussport.export.graph_check import check_graph
from gaussport.export.model_file import serialize
from gaussport.export.onnx_export import export_onnx, pictures_of
from gaussport.export.session import Session
from gaussport.plugins import DOMAIN, OPSET_VERSION

CUSTOM = {"ssog": "SeparableGaussianFilter", "gma": "LatentMemoryRouting", "dot": None}


def test_one_custom_node_for_each_attention_named_as_in_pytorch(exported: Any) -> None:
    nodes = {node.name: node.op_type for node in exported.model.graph.node if node.domain == DOMAIN}
    operator = CUSTOM[exported.kind.split()[0]]
    depth = exported.module.config.depth
    assert nodes == ({} if operator is None else {f"blocks.{index}.attn": operator for index in range(depth)})


def test_each_custom_operator_has_one_body_of_the_models_opset(exported: Any) -> None:
    operator = CUSTOM[exported.kind.split()[0]]
    assert [function.name for function in exported.model.functions] == ([] if operator is None else [operator])
    for function in exported.model.functions:
        assert [(entry.domain, entry.version) for entry in function.opset_import] == [("", 20)]
    domains = {entry.domain: entry.version for entry in exported.model.opset_import}
    assert domains == ({"": 20} if operator is None else {"": 20, DOMAIN: OPSET_VERSION})


def test_attributes_of_the_module_reach_the_node(exports: Callable[[str], Any]) -> None:
    node = next(node for node in exports("gma causal").model.graph.node if node.domain == DOMAIN)
    attributes = {attribute.name: onnx.helper.get_attribute_value(attribute) for attribute in node.attribute}
    assert attributes == {"causal": 1, "epsilon": pytest.approx(1e-6)}


def test_input_and_output_share_one_batch_symbol(exported: Any) -> None:
    (pixels,), (logits,) = exported.model.graph.input, exported.model.graph.output
    assert (pixels.name, logits.name) == ("pixels", "logits")
    axes = [[axis.dim_param or axis.dim_value for axis in value.type.tensor_type.shape.dim] for value in (pixels, logits)]
    assert axes == [["batch", *exported.shape], ["batch", exported.module.config.classes]]


def test_parameters_keep_their_names(exports: Callable[[str], Any]) -> None:
    exported = exports("ssog")
    shapes = {name: tuple(tensor.shape) for name, tensor in exported.module.state_dict().items()}
    stored = {tensor.name: tuple(tensor.dims) for tensor in exported.model.graph.initializer}
    assert stored["blocks.1.attn.mu"] == shapes["blocks.1.attn.mu"]
    assert stored["blocks.1.attn.v.weight.T"] == shapes["blocks.1.attn.v.weight"][::-1]
    weights = {name.removesuffix(".T") for name in stored}
    assert [name for name in shapes if name.endswith((".weight", ".bias")) and name not in weights] == []


def test_names_are_unique(exported: Any) -> None:
    graph = exported.model.graph
    for names in ([node.name for node in graph.node], [tensor.name for tensor in graph.initializer]):
        assert [name for name, number in Counter(names).items() if number > 1 or not name] == []


def test_nothing_tells_of_the_machine_or_the_source(exported: Any) -> None:
    for word in (b"/home", b"/root", b"/work", b".py", b"File ", b"aten::", b"aten.", b"pkg.", b"call_function", b"torch"):
        assert word not in exported.data, word
    assert exported.model.producer_name == "gaussport"


def test_the_file_is_hardly_larger_than_the_parameters(exports: Callable[[str], Any]) -> None:
    exported = exports("gma")
    weights = sum(tensor.numel() * 4 for tensor in exported.module.state_dict().values())
    assert len(exported.data) < weights + 20_000  # graph, names and bodies; nothing folded into tables


@pytest.mark.parametrize("opset", [18, 25])
def test_the_opset_is_the_one_that_was_asked_for(exports: Callable[[str], Any], opset: int) -> None:
    exported = exports("gma causal")
    model = export_onnx(exported.module, [pictures_of(exported.shape)], opset)
    assert next(entry.version for entry in model.opset_import if entry.domain == "") == opset
    onnx.checker.check_model(model, full_check=True)
    pixels = exported.pixels(3)
    assert abs(Session(serialize(model)).run(pixels) - exported.torch_answer(pixels)).max() < 2e-5


@pytest.mark.parametrize("opset", [-1, 0, 9, 17, 26, 99])
def test_other_opsets_are_refused_before_tracing(opset: int) -> None:
    with pytest.raises(UsageError, match=rf"opset {opset} is not supported: choose one from 18 to 25"):
        export_onnx(nn.Identity(), [pictures_of((3, 8, 8))], opset)


class _Tail(nn.Module):
    """Pixels to logits by one linear layer and a tail."""

    def __init__(self, *tail: nn.Module) -> None:
        super().__init__()
        self.body = nn.Sequential(nn.Flatten(), nn.Linear(12, 5), *tail)

    def forward(self, pixels: Tensor) -> Tensor:
        return torch.as_tensor(self.body(pixels))


def test_the_exporter_is_quiet_and_returns_the_module_as_it_was(
    capfd: pytest.CaptureFixture[str], caplog: pytest.LogCaptureFixture
) -> None:
    module = _Tail(nn.ReLU(), nn.Sequential(nn.Dropout())).train()
    module.body[2].eval()
    before = [part.training for part in module.modules()]
    with caplog.at_level(logging.NOTSET), warnings.catch_warnings():
        warnings.simplefilter("error")
        export_onnx(module, [pictures_of((3, 2, 2))])
    assert [part.training for part in module.modules()] == before
    assert len(set(before)) == 2
    assert capfd.readouterr() == ("", "")
    assert [record for record in caplog.records if record.levelno >= logging.WARNING] == []


def test_dropout_does_not_act_though_the_module_trains() -> None:
    module = _Tail(nn.Dropout(0.5), nn.BatchNorm1d(5)).train()
    model = export_onnx(module, [pictures_of((3, 2, 2))])
    assert module.training
    assert {"Dropout"} & {node.op_type for node in model.graph.node} == set()
    pixels = torch.randn(4, 3, 2, 2)
    with torch.no_grad():
        expected = module.eval()(pixels).numpy()
    assert abs(Session(serialize(model)).run(pixels.numpy()) - expected).max() < 1e-6


class _AlwaysDrops(nn.Module):
    def forward(self, x: Tensor) -> Tensor:
        return torch.nn.functional.dropout(x, 0.5, training=True)


class _MixesRows(nn.Module):
    def forward(self, x: Tensor) -> Tensor:
        return x.sum(0, keepdim=True)


class _FixesTheBatch(nn.Module):
    def forward(self, x: Tensor) -> Tensor:
        return x.reshape(2, -1)


class _Branches(nn.Module):
    def forward(self, x: Tensor) -> Tensor:
        return x if x.sum() > 0 else -x


class _Doubles(nn.Module):
    def forward(self, x: Tensor) -> Tensor:
        return x.double().exp().float()


@pytest.mark.parametrize(
    ("tail", "words"),
    [
        (_AlwaysDrops, "differ from run to run"),
        (_MixesRows, "batch"),
        (_FixesTheBatch, "batch"),
        (_Branches, "cannot be traced"),
        (_Doubles, "float64"),
    ],
)
def test_modules_that_cannot_be_shipped_are_refused_with_the_reason(tail: type[nn.Module], words: str) -> None:
    with pytest.raises(ExportError, match=words) as caught:
        export_onnx(_Tail(tail()), [pictures_of((3, 2, 2))])
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize("dtype", [torch.float64, torch.float16, torch.bfloat16])
def test_other_parameter_types_are_refused(dtype: torch.dtype) -> None:
    with pytest.raises(ExportError, match=r"convert the module with \.float\(\)"):
        export_onnx(_Tail().to(dtype), [pictures_of((3, 2, 2))])


def test_parameters_elsewhere_than_on_the_cpu_are_refused() -> None:
    with pytest.raises(ExportError, match=r"are on meta: call \.cpu\(\)"):
        export_onnx(_Tail().to("meta"), [pictures_of((3, 2, 2))])


class _Shares(nn.Module):
    """Two layers with one weight."""

    def __init__(self) -> None:
        super().__init__()
        self.first, self.second = nn.Linear(64, 64), nn.Linear(64, 64)
        self.second.weight = self.first.weight

    def forward(self, pixels: Tensor) -> Tensor:
        return torch.as_tensor(self.second(self.first(pixels.flatten(2)).relu()).mean(1))


def test_a_shared_weight_is_stored_once() -> None:
    model = export_onnx(_Shares(), [pictures_of((3, 8, 8))])
    matrices = [tensor.name for tensor in model.graph.initializer if list(tensor.dims) == [64, 64]]
    assert matrices == ["first.weight.T"]


def _doubled(model: onnx.ModelProto) -> None:
    model.graph.initializer[0].data_type = TensorProto.DOUBLE


def _renamed(model: onnx.ModelProto) -> None:
    model.graph.node[0].domain = "com.example"


def _dropped(model: onnx.ModelProto) -> None:
    del model.graph.node[next(i for i, node in enumerate(model.graph.node) if node.domain == DOMAIN)]


@pytest.mark.parametrize(
    ("change", "words"),
    [
        (_doubled, "is float64"),
        (_renamed, r"com\.example::"),
        (_dropped, "calls 2 SeparableGaussianFilter but its graph has 1 SeparableGaussianFilter"),
    ],
)
def test_the_last_check_refuses(
    exports: Callable[[str], Any], change: Callable[[onnx.ModelProto], None], words: str
) -> None:
    model = onnx.load_model_from_string(exports("ssog").data)
    check_graph(model, opset=20, calls={"SeparableGaussianFilter": 2})
    change(model)
    with pytest.raises(ExportError, match=words):
        check_graph(model, opset=20, calls={"SeparableGaussianFilter": 2})
