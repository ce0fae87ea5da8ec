"""`gaussport verify` holds `explain.onnx` against its model and against PyTorch, and names it when it is damaged."""

from collections.abc import Callable

import numpy as np
import onnx
import pytest
import torch
from torch import Tensor, nn

from gaussport.errors import GaussportError
from gaussport.export.bundle.explanation import METADATA_KEY
from gaussport.export.bundle.manifest import EXPLAIN_FILE
from gaussport.export.bundle.store import Bundle, open_bundle, writing_bundle
from gaussport.export.explanation.in_pytorch import explained_in_pytorch
from gaussport.export.trained import Trained
from gaussport.export.verification.checks import CHECKS, WITH_CHECKPOINT
from gaussport.export.verification.explained import explanation_as_in_pytorch, explanation_tells
from gaussport.export.verification.subject import Subject
from gaussport.export.verification.wish import VerifyWish
from gaussport.models import zoo
from gaussport.plugins.latent_memory_routing.torch_op import latent_memory_routing

Bundles = Callable[..., Bundle]
MODELS = ["mnist-ssog", "mnist-gma"]


@pytest.fixture
def subject(bundles: Bundles, trained: Callable[[str], Trained]) -> Callable[..., Subject]:
    """`subject(name, precision, damage)`: a bundle with its checkpoint; `damage` changes its explain.onnx, hash and all."""

    def get(name: str, precision: str = "fp32", damage: Callable[[bytes], bytes] = lambda whole: whole) -> Subject:
        bundle = bundles(name, precision)
        path = bundle.path.with_name(f"damaged{len(list(bundle.path.parent.iterdir()))}")
        with writing_bundle(path) as draft:
            for file in bundle.manifest.files:
                content = bundle.read(file)
                (draft.folder / file).write_bytes(damage(content) if file == EXPLAIN_FILE else content)
            draft.finish(lambda files: bundle.manifest.model_copy(update={"files": files}))
        made = Subject(open_bundle(path), VerifyWish(zoo.path(name)))
        made.original = trained(name)  # the tests' bundles have fewer layers than the file
        return made

    return get


def _edited(edit: Callable[[onnx.ModelProto], None]) -> Callable[[bytes], bytes]:
    def damage(content: bytes) -> bytes:
        part = onnx.load_model_from_string(content)
        edit(part)
        return bytes(part.SerializeToString())

    return damage


def _another_layers_field(part: onnx.ModelProto) -> None:
    """The first layer tells what the second one sees."""
    part.graph.node[0].input[:] = part.graph.node[1].input


def _a_wrong_constant(part: onnx.ModelProto) -> None:
    tensor = part.graph.initializer[0]
    tensor.CopyFrom(onnx.numpy_helper.from_array(onnx.numpy_helper.to_array(tensor) + np.float32(1e-3), tensor.name))


def _a_wrong_mass(part: onnx.ModelProto) -> None:
    next(node for node in part.functions[0].node if "mass" in node.output).op_type = "ReduceMean"


def _one_layer_less(part: onnx.ModelProto) -> None:
    (entry,) = part.metadata_props
    entry.value = entry.value.replace("SeparableGaussianFilter", "SomethingElse", 1)


@pytest.mark.parametrize("name", MODELS)
@pytest.mark.parametrize("precision", ["fp32", "bf16"])
def test_a_whole_one_passes(subject: Callable[..., Subject], name: str, precision: str) -> None:
    whole = subject(name, precision)
    assert "attention rows miss their sum by" in explanation_tells(whole)
    assert "tensors are PyTorch's within" in explanation_as_in_pytorch(whole)


@pytest.mark.parametrize(
    ("name", "damage", "fault"),
    [
        ("mnist-ssog", lambda content: content[: len(content) // 2], "ONNX Runtime cannot load explain.onnx of"),
        ("mnist-gma", lambda content: b"", "explain.onnx of .* does not say which layers it explains"),
        ("mnist-ssog", _edited(_another_layers_field), "explain.onnx: blocks.0.attn/offset differs from PyTorch's by"),
        ("mnist-ssog", _edited(_a_wrong_constant), "explain.onnx: blocks.0.attn/fixed_offset differs from PyTorch's by"),
        ("mnist-gma", _edited(_a_wrong_mass), "explain.onnx: the attention rows of blocks...attn miss their sum by"),
        ("mnist-ssog", _edited(_one_layer_less), "explain.onnx tells of 3 layers where the graph has 4"),
    ],
)
def test_a_damaged_one_is_named(
    subject: Callable[..., Subject], name: str, damage: Callable[[bytes], bytes], fault: str
) -> None:
    damaged = subject(name, "fp32", damage)
    with pytest.raises(GaussportError, match=fault):  # noqa: PT012 - either of the two checks may find it
        explanation_tells(damaged)
        explanation_as_in_pytorch(damaged)


def test_verify_asks() -> None:
    asked = [check.ask for check in (*CHECKS, *WITH_CHECKPOINT)]
    assert {explanation_tells, explanation_as_in_pytorch} <= set(asked)


def test_metadata_are_where_readers_look(bundles: Bundles) -> None:
    part = onnx.load_model_from_string(bundles("mnist-gma").read(EXPLAIN_FILE))
    assert [entry.key for entry in part.metadata_props] == [METADATA_KEY]


def test_pytorch_is_asked_for_masks_and_causal_order_too() -> None:
    """The mass of causal order is a running sum, and masked keys have no responsibility."""

    class Routed(nn.Module):
        def forward(self, x: Tensor) -> Tensor:
            mixture, mask = (
                (torch.zeros(1, 3, 2), torch.ones(1, 3, 2), torch.zeros(1, 3)),
                torch.tensor([[1.0, 0.0, 1.0, 1.0]]),
            )
            return torch.as_tensor(latent_memory_routing(x, x, x, *mixture, mask, causal=True))

    (told,) = explained_in_pytorch(Routed(), [torch.zeros(1, 4, 1, 2)])
    np.testing.assert_allclose(told["key_responsibility"][0, :, 0, 0], [1 / 3, 0, 1 / 3, 1 / 3])
    np.testing.assert_allclose(told["mass"][0, :, 0, 0], [1 / 3, 1 / 3, 2 / 3, 1])
