"""How much a model grew beside its parameters, and what of it grew: in an export's report and in verify."""

import json
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import torch
from onnx import numpy_helper
from torch import Tensor, nn

from gaussport.export.model_file import serialize
from gaussport.export.pipeline import export_module
from gaussport.export.size import size_said
from gaussport.models.image.preprocess import Preprocessing


class _WithTable(nn.Module):
    """A head, and a table that is no parameter but as large."""

    table: Tensor

    def __init__(self) -> None:
        super().__init__()
        self.head = nn.Linear(192, 64)
        self.register_buffer("table", torch.linspace(0, 1, 192 * 64).view(192, 64))

    def forward(self, pixels: Tensor) -> Tensor:
        rows = pixels.flatten(1)
        return torch.as_tensor(self.head(rows) + rows @ self.table)


def test_the_report_of_an_export_says_what_grew(tmp_path: Path) -> None:
    bundle = export_module(_WithTable(), tmp_path / "bundle", Preprocessing(size=(8, 8)), max_batch=1)
    parameters, total = 4 * (192 * 64 + 64), bundle.manifest.files["model.onnx"].bytes
    said = json.loads(bundle.read("report.json"))["graph"]["size"]
    assert said.startswith(
        f"{total:,} bytes, {total / parameters:.2f} times the parameters' {parameters:,}: beside them are "
    )
    assert f"table ({4 * 192 * 64:,})" in said
    assert f"| size | {said} |" in bundle.read("report.md").decode()


def test_what_did_not_grow_is_not_explained(exports: Any) -> None:
    exported = exports("gma")
    shapes = {name: parameter.shape for name, parameter in exported.module.named_parameters()}
    parameters = sum(parameter.numel() for parameter in exported.module.parameters()) * 4
    assert size_said(exported.model, int(1.2 * parameters), shapes).endswith(f"1.20 times the parameters' {parameters:,}")
    assert "beside them are" in size_said(exported.model, int(1.2 * parameters) + 1, shapes)


def test_narrow_parameters_are_counted_as_they_are_stored(exports: Any) -> None:
    exported = exports("ssog")
    shapes = {name: parameter.shape for name, parameter in exported.module.named_parameters()}
    wide = sum(parameter.numel() for parameter in exported.module.parameters()) * 4
    assert f"times the parameters' {wide:,}" in size_said(exported.model, wide, shapes)
    narrow = onnx.load_model_from_string(exported.data)
    tensor = next(t for t in narrow.graph.initializer if t.name == "blocks.0.mlp.0.weight.T")
    numbers = numpy_helper.to_array(tensor)
    tensor.CopyFrom(numpy_helper.from_array(numbers.astype(np.float16), tensor.name))
    assert f"times the parameters' {wide - 2 * numbers.size:,}" in size_said(narrow, len(serialize(narrow)), shapes)
