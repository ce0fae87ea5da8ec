"""The models that are compared, with random weights: their modules, our export and the plain one, kept between runs."""

import hashlib
from pathlib import Path

import torch
from torch import nn

from benchmarks.models.plain import plain_attention
from gaussport.export.model_file import serialize
from gaussport.export.onnx_export import export_onnx, pictures_of
from gaussport.export.quiet import quiet_exporter
from gaussport.models.classifier import Classifier
from gaussport.models.presets import preset

ROOT = Path(__file__).parents[2]
KEPT = ROOT / "build" / "bench" / "models"
FAMILIES = ("dot", "ssog", "gma")
TWIN = "dot"


def module(family: str, size: str, side: int) -> Classifier:
    """A classifier for pictures of side × side pixels, its probes drawn at random so that every token steers its field."""
    torch.manual_seed(0)
    classifier = Classifier(preset(f"{family}-{size}", image_size=(side, side))).eval()
    for name, parameter in classifier.named_parameters():
        if "_delta.weight" in name or "lambda_gate.weight" in name:
            nn.init.normal_(parameter, std=0.02)
    return classifier


def ours(family: str, size: str, side: int) -> bytes:
    """The ONNX model that `gaussport export` writes."""
    kept = KEPT / f"{family}-{size}-{side}-{_digest('export', 'models', 'plugins')}.onnx"
    if not kept.exists():
        _keep(kept, serialize(export_onnx(module(family, size, side), [pictures_of((3, side, side))])))
    return kept.read_bytes()


def plain(family: str, size: str, side: int) -> bytes:
    """What `torch.onnx.export` makes of the same weights in a module of einsums, a dynamic batch being all that is asked."""
    kept = KEPT / f"plain-{family}-{size}-{side}-{_digest('models', 'benchmarks/models')}.onnx"
    if not kept.exists():
        classifier = module(family, size, side)
        with plain_attention(), quiet_exporter():
            program = torch.onnx.export(
                classifier,
                (torch.zeros(2, 3, side, side),),
                input_names=["pixels"],
                output_names=["logits"],
                dynamic_shapes=({0: torch.export.Dim("batch", min=1)},),
                dynamo=True,
                verbose=False,
            )
        assert program is not None
        _keep(kept, program.model_proto.SerializeToString())
    return kept.read_bytes()


def gigaflop(family: str, size: str, side: int) -> float:
    """Billions of operations in the matrix products of one picture, as OPS.md and the layers' sizes count them."""
    config = preset(f"{family}-{size}", image_size=(side, side))
    H, W = config.grid
    N, dim, attention = H * W, config.dim, config.attention
    P, D = attention.heads, dim // attention.heads
    linear = 2 * dim * round(dim * config.mlp_ratio) + 2 * dim * dim  # the MLP; value and output
    if family == "ssog":
        linear += 5 * P * attention.atoms * dim  # type: ignore[attr-defined]
        mixing = 4 * P * attention.atoms * D * N * (H + W) / 2  # type: ignore[attr-defined]
    elif family == "gma":
        K, dr = attention.components, attention.routing_width  # type: ignore[attr-defined]
        linear += 2 * P * dr * dim
        mixing = P * N * (4 * K * dr + 4 * K * D)
    else:
        linear += 2 * dim * dim
        mixing = 4 * N * N * dim
    ends = 2 * N * config.patch**2 * config.channels * dim + 2 * dim * config.classes
    return float(config.depth * (2 * N * linear + mixing) + ends) / 1e9


def _keep(path: Path, model: bytes) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    for older in path.parent.glob(f"{path.stem.rpartition('-')[0]}-*.onnx"):
        older.unlink()
    partial = path.with_suffix(".partial")
    partial.write_bytes(model)
    partial.rename(path)


def _digest(*folders: str) -> str:
    """Of the sources that make a model: a change in them makes it anew."""
    sources = sorted(path for folder in folders for path in (ROOT / folder).rglob("*.py"))
    return hashlib.sha256(b"".join(path.read_bytes() for path in sources)).hexdigest()[:12]
