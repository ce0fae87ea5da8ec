"""Which layer is the first to go astray, and what in it is to blame.

Every layer's output in the graph is compared with PyTorch's in the order of the run, a bounded number of bytes at a time,
until one departs. Each has a tolerance of its own, by its scale and by how PyTorch itself rounds there.
"""

import copy
from collections.abc import Iterator, Mapping
from dataclasses import dataclass

import numpy as np
import onnx
from torch import nn

from gaussport.export.evaluation import tensors_of, widened
from gaussport.export.inputs import Inputs
from gaussport.export.model_file import ModelFile, serialize, tensor_array
from gaussport.export.precision.emulation import emulated, is_narrow
from gaussport.export.precision.formats import FORMATS
from gaussport.export.precision.own_rounding import rounding
from gaussport.export.session import Session
from gaussport.export.tolerance import tolerance_for
from gaussport.export.verification.layers import Array, exposing, graph_layers, observe

_BOUND_BYTES = 256 << 20
"""How much the outputs that are compared at once may hold."""


@dataclass(frozen=True)
class Departure:
    """The first layer whose output differs, the value that holds it, and by how much."""

    layer: str
    value: str
    error: float
    scale: float
    allowed: float
    agreeing: tuple[str, ...]
    """The layers before it, all of which agree."""
    not_finite: int

    def __str__(self) -> str:
        before = f"{len(self.agreeing)} layers before it agree" if self.agreeing else "it is the first that is compared"
        if self.not_finite:
            return (
                f"{self.layer} is the first layer to depart: {self.not_finite} of its numbers are NaN or infinite; {before}"
            )
        return (
            f"{self.layer} is the first layer to depart: by {self.error:.1e} where its numbers reach {self.scale:.2g} and "
            f"{self.allowed:.1e} is allowed; {before}"
        )


def first_departure(
    module: nn.Module, model: onnx.ModelProto, file: ModelFile, inputs: Inputs, precision: str = "fp32"
) -> Departure | None:
    """Compare layer by layer on one batch; None when no layer departs by more than it may."""
    values = graph_layers(model.graph)
    agreeing: list[str] = []
    for names in _groups(module, values, inputs):
        expected = observe(module, tensors_of(inputs), names).kept
        moved = _moved(module, inputs, names, precision)
        found = graph_values(model, file, [values[name] for name in names], inputs)
        for name in names:
            answer = found[values[name]]
            if answer.size != expected[name].size:  # the graph keeps another value under this name
                continue
            departure = _departure(name, values[name], expected[name], answer, moved.get(name), precision, tuple(agreeing))
            if departure is not None:
                return departure
            agreeing.append(name)
    return None


def graph_values(model: onnx.ModelProto, file: ModelFile, names: list[str], inputs: Inputs) -> dict[str, Array]:
    """Values of the graph by name, as float32: what nodes give, run in ONNX Runtime, and what is stored."""
    stored = {t.name: tensor_array(t, file) for t in model.graph.initializer if t.name in names}
    computed = [name for name in dict.fromkeys(names) if name not in stored]
    exposed = exposing(model, computed)
    exposed = emulated(exposed) if is_narrow(exposed) else exposed  # as a GPU rounds it: CPU kernels would hide an overflow
    session = Session(ModelFile(serialize(exposed), file.beside))
    answers = dict(zip(computed, session.run_all(inputs, computed), strict=True))
    return {name: np.asarray(value).astype(np.float32) for name, value in {**stored, **answers}.items()}


def _groups(module: nn.Module, values: Mapping[str, str], inputs: Inputs) -> Iterator[list[str]]:
    """The layers that both sides have, in the order of the run, as many at a time as the bound allows."""
    sizes = {name: size for name, size in observe(module, tensors_of(inputs), ()).sizes.items() if name in values}
    group: list[str] = []
    held = 0
    for name, size in sizes.items():
        if group and held + size > _BOUND_BYTES:
            yield group
            group, held = [], 0
        group.append(name)
        held += size
    if group:
        yield group


def _moved(module: nn.Module, inputs: Inputs, names: list[str], precision: str) -> dict[str, Array]:
    """The same outputs in float64, or rounded to the narrow format: how the module itself rounds."""
    tensors = tensors_of(inputs)
    try:
        if precision == "fp32":
            return observe(copy.deepcopy(module).double(), widened(tensors), names).kept
        if precision in FORMATS:
            with rounding(module, tensors, precision):
                return observe(module, tensors, names).kept
    except RuntimeError:  # a module that makes float32 tensors of its own has no float64 to compare with
        pass
    return {}


def _departure(
    name: str,
    value: str,
    expected: Array,
    found: Array,
    moved: Array | None,
    precision: str,
    agreeing: tuple[str, ...],
) -> Departure | None:
    wide = found.reshape(expected.shape).astype(np.float64)
    bad = int(np.count_nonzero(~np.isfinite(wide)) + np.count_nonzero(~np.isfinite(expected)))
    if bad:
        return Departure(name, value, np.inf, np.inf, 0.0, agreeing, bad)
    scale = float(np.abs(expected).max(initial=0.0))
    own = None if moved is None else float(np.abs(moved - expected).max(initial=0.0))
    allowed = tolerance_for(precision, scale, own).absolute
    error = float(np.abs(wide - expected).max(initial=0.0))
    return Departure(name, value, error, scale, allowed, agreeing, 0) if error > allowed else None
