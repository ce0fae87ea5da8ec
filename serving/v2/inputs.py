"""Which of a request's tensors is which of the model's inputs: pictures, encoded or as pixels, and what is beside them."""

from dataclasses import dataclass

from gaussport.export.bundle.manifest import FurtherInput, Manifest
from gaussport.serving.errors import RequestError
from gaussport.serving.rows import Rows, packed
from gaussport.serving.v2.metadata import PICTURES_INPUT, TEXTS_INPUT
from gaussport.serving.v2.request import InferRequest, InputTensor
from gaussport.serving.v2.tensors import numbers


@dataclass(frozen=True)
class Given:
    """The tensors of one request, each input of the model there once."""

    first: InputTensor
    encoded: bool
    """Whether `first` holds encoded pictures and not pixels, or texts and not tokens."""
    beside: tuple[tuple[FurtherInput, InputTensor], ...] = ()

    @property
    def as_json(self) -> bool:
        """Whether a tensor came as JSON numbers or texts, which take their time."""
        return self.first.raw is None or any(tensor.raw is None for _, tensor in self.beside)

    def with_pixels(self, manifest: Manifest, pixels: Rows) -> Rows:
        """The rows of all inputs, with these pixels for the first."""
        if not self.beside:
            return pixels
        inputs = {manifest.input.name: pixels}
        for spec, tensor in self.beside:
            inputs[spec.name] = numbers(tensor, spec)
            if len(inputs[spec.name]) != len(pixels):
                rows = f"{self.first.name} has {len(pixels)} rows and {spec.name} {len(inputs[spec.name])}"
                raise RequestError(f"{rows}: send one row of each for every picture", "malformed_tensor")
        return packed(inputs)


def given(request: InferRequest, manifest: Manifest, model: str) -> Given:
    """Raises a RequestError unless every input of the model is there, once, and nothing else."""
    own = manifest.input.name
    tensors = {tensor.name: tensor for tensor in request.inputs}
    if len(tensors) != len(request.inputs):
        raise RequestError("two inputs of the request have the same name", "malformed_request")
    raw = TEXTS_INPUT if manifest.takes_text else PICTURES_INPUT
    encoded = raw in tensors and (tensors[raw].datatype == "BYTES" or own != raw)
    first = tensors.pop(raw if encoded else own, None)
    beside = tuple((spec, tensors.pop(spec.name)) for spec in manifest.further_inputs if spec.name in tensors)
    if tensors:
        others = "".join(f", {spec.name}" for spec in manifest.further_inputs)
        raise RequestError(f"{model} has no such input: send {own} or {raw}{others}", "malformed_request")
    missing = [] if first is not None else [f"{own} or {raw}"]
    missing += [spec.name for spec in manifest.further_inputs if all(spec is not found for found, _ in beside)]
    if missing or first is None:
        raise RequestError(f"{model} also needs {', '.join(missing)}: send all inputs in one request", "malformed_request")
    return Given(first, encoded, beside)
