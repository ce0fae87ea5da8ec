"""What a module of the caller's own reads beside pixels, shown by examples: `example_inputs`, tensors by parameter name.

An example says the name, type and shape of an input, and the range of its numbers: a proof that runs a model with other
numbers than it will be served proves nothing.
"""

import inspect
from collections.abc import Mapping

import torch
from torch import Tensor, nn

from gaussport.errors import ExportError
from gaussport.export.bundle.manifest import FurtherInput
from gaussport.export.onnx_export import BATCH, OUTPUT
from gaussport.export.probes import PIXELS

ATTRIBUTE = "example_inputs"

_DTYPES = (torch.float32, torch.int64, torch.int32, torch.bool)
_VARIADIC = (inspect.Parameter.VAR_POSITIONAL, inspect.Parameter.VAR_KEYWORD)


def further_inputs_of(
    module: nn.Module, name: str, examples: Mapping[str, Tensor] | None = None
) -> tuple[FurtherInput, ...]:
    """What `forward` takes beside its first parameter, in its order, as `examples` show it or, without them, the module's
    attribute `example_inputs`. Parameters that have a default and no example keep their default.

    Raises:
        ExportError: a parameter has neither, an example is for none, or one does not show an input.
    """
    shown = getattr(module, ATTRIBUTE, {}) if examples is None else examples
    if not isinstance(shown, Mapping):
        raise ExportError(
            f"{ATTRIBUTE} of {name} is a {type(shown).__name__} but must be a dict of tensors by parameter name"
        )
    first, parameters = _parameters(module)
    unknown = [key for key in shown if key not in parameters]
    if unknown:
        beside = ", ".join(parameters) or "nothing"
        raise ExportError(f"{ATTRIBUTE} of {name} shows {unknown[0]!r}, but beside {first} its forward takes {beside}")
    taken = [parameter for parameter in parameters if parameter in shown]
    missing = [key for key, parameter in parameters.items() if key not in shown and parameter.default is parameter.empty]
    if missing:
        raise ExportError(
            f"the module of {name} asks for {first} and {', '.join(missing)}: show what is beside the pixels with "
            f"{ATTRIBUTE}, a dict of tensors by parameter name, or give it a default"
        )
    skipped = [key for key in list(parameters)[: len(taken)] if key not in shown]
    if skipped:
        raise ExportError(f"{ATTRIBUTE} of {name} leaves {skipped[0]} out, which comes before {taken[-1]}: show it too")
    return tuple(_input(key, shown[key], name) for key in taken)


def _parameters(module: nn.Module) -> tuple[str, dict[str, inspect.Parameter]]:
    """The name of the parameter that takes the pixels, and the others by theirs."""
    parameters = inspect.signature(module.forward).parameters
    named = {key: parameter for key, parameter in parameters.items() if parameter.kind not in _VARIADIC}
    first = next(iter(named), PIXELS)
    return first, {key: parameter for key, parameter in named.items() if key != first}


def _input(key: str, example: object, name: str) -> FurtherInput:
    who = f"the example of {key} for {name}"
    if not isinstance(example, Tensor):
        raise ExportError(f"{who} is a {type(example).__name__} but must be a tensor [batch, …]")
    if example.dtype not in _DTYPES:
        kinds = ", ".join(_word(dtype) for dtype in _DTYPES)
        raise ExportError(
            f"{who} is {_word(example.dtype)}, but inputs are {kinds}: convert it, and what the module expects"
        )
    if example.dim() == 0 or example.numel() == 0:
        raise ExportError(f"{who} has the shape {list(example.shape)} but must be [batch, …], with numbers in it")
    if key in (PIXELS, OUTPUT):
        raise ExportError(f"{who} has a name that the bundle has already for its {key}: give the parameter another")
    low, high = (float(end) for end in example.double().aminmax())
    if not low < high or not (example.isfinite().all()):
        raise ExportError(
            f"{who} goes from {low:g} to {high:g}: let it have the smallest and the largest number that the model will be "
            "given, between which the proof runs it"
        )
    shape = (BATCH, *example.shape[1:])
    return FurtherInput.model_validate(
        {"name": key, "dtype": _word(example.dtype), "shape": shape, "low": low, "high": high}
    )


def _word(dtype: torch.dtype) -> str:
    return str(dtype).removeprefix("torch.")
