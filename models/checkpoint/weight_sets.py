"""The sets of weights in a file, and the choice of one: the trained parameters, or their moving average.

Where a file has an average, that is what its author evaluates, and what is taken unless the caller says otherwise. Which one
it was is printed and stored: a set that was asked for and is not there is an error, never the other set.
"""

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from torch import Tensor

from gaussport.errors import CheckpointError

RAW, EMA = "raw", "ema"

RAW_KEYS = ("state_dict", "model_state_dict", "model_state", "model", "module", "net", "network", "params", "weights")
_AVERAGE = re.compile(r"(?:^|_)(?:ema|swa|avg|average|averaged|shadow)(?:_|$)")
_COUNTERS = ("n_averaged", "num_updates", "updates", "step", "initted", "decay")
_NAMELESS = "shadow_params"
"""Where torch_ema and diffusers keep an average: a list in the order of `module.parameters()`."""
_NOT_WEIGHTS = ("optim", "sched", "scaler", "rng", "loop", "callback", "momentum", "opt_state")


@dataclass(frozen=True)
class WeightSet:
    """Named tensors, the key they lie under (dots between levels, empty for the file itself), and what they are; or the
    `fault` for which they cannot be read, if they are asked for."""

    key: str
    kind: str
    tensors: Mapping[str, Tensor]
    fault: str = ""

    def __str__(self) -> str:
        words = "the moving average" if self.kind == EMA else "the trained parameters"
        return f"{words} under {self.key}" if self.key else words


def weight_sets(content: Mapping[str, Any], source: str) -> list[WeightSet]:
    """Every set of weights in the content of a file, by key.

    Raises:
        CheckpointError: there is none, or something in one is no tensor.
    """
    places = [*_places(content), *([("", EMA, content)] if _nameless(content) else [])]
    named = [place for place in places if not _nameless(place[2])]
    found = [one for key, kind, mapping in named for one in _split(key, kind, _tensors(mapping, key, source))]
    found = [one for one in found if one.tensors]
    found += [_named_in_order(key, _nameless(mapping), found, source) for key, _, mapping in places if _nameless(mapping)]
    if not found:
        raise CheckpointError(f"{source} holds no tensors where weights belong{_instead(content)}: it is no trained model")
    return found


def choose(sets: list[WeightSet], wish: str | None, source: str) -> WeightSet:
    """The one set that is wished for: `raw`, `ema`, a key, or None for the average where there is one.

    Raises:
        CheckpointError: the file has no such set, or more than one.
    """
    known = ", ".join(f"{one.key or 'the file itself'} ({one.kind})" for one in sets)
    kind = wish or (EMA if any(one.kind == EMA for one in sets) else RAW)
    fitting = [one for one in sets if one.kind == kind] if kind in (RAW, EMA) else []
    fitting = fitting or [one for one in sets if one.key == wish]
    if not fitting:
        lacks = {EMA: "no moving average", RAW: "no weights but averages"}.get(kind, f"no weights under {wish!r}")
        raise CheckpointError(f"{source} has {lacks}; it has {known}: choose one with --weights")
    if len(fitting) > 1:
        raise CheckpointError(f"{source} holds {len(fitting)} sets of {kind} weights, {known}: name one with --weights KEY")
    if fitting[0].fault:
        raise CheckpointError(fitting[0].fault)
    return fitting[0]


def _places(content: Mapping[str, Any]) -> Iterator[tuple[str, str, Mapping[str, Any]]]:
    """Where weights lie, by name; without a name that is known, every mapping of tensors only."""
    lightning_average = "current_model_state" in content and "averaging_state" in content
    found = []
    for key, value in content.items():
        if not isinstance(key, str) or not isinstance(value, Mapping):
            continue
        average = bool(_AVERAGE.search(key.lower())) or (lightning_average and key == "state_dict")
        if average or key in RAW_KEYS or (lightning_average and key == "current_model_state"):
            inner, path = _unwrapped(value, key)
            found.append((path, EMA if average else RAW, inner))
    if found:
        yield from found
    elif content and all(_is_tensor(leaf) for _, leaf in _leaves(content)):
        yield "", RAW, content
    elif any(_is_tensor(value) for value in content.values()):
        yield "", RAW, {key: value for key, value in content.items() if _is_tensor(value)}
    else:
        for key, value in content.items():
            if isinstance(key, str) and isinstance(value, Mapping) and not any(w in key.lower() for w in _NOT_WEIGHTS):
                leaves = list(_leaves(value))
                if leaves and all(_is_tensor(leaf) for _, leaf in leaves):
                    yield key, RAW, value


def _unwrapped(mapping: Mapping[str, Any], path: str) -> tuple[Mapping[str, Any], str]:
    """The mapping inside those that only wrap it: `{"state_dict": …, "decay": 0.999}`."""
    for key in RAW_KEYS:
        inner = mapping.get(key)
        if isinstance(inner, Mapping) and not any(_is_tensor(value) for value in mapping.values()):
            return _unwrapped(inner, f"{path}.{key}")
    return mapping, path


def _split(key: str, kind: str, tensors: dict[str, Tensor]) -> Iterator[WeightSet]:
    """One set, or two where an average lies beside its model: `model.…` and `ema_model.…`."""
    averaged_by_torch = "n_averaged" in tensors  # torch.optim.swa_utils.AveragedModel counts what it averaged
    plain = {name: tensor for name, tensor in tensors.items() if name.rpartition(".")[2] not in _COUNTERS or tensor.dim()}
    average = {name: tensor for name, tensor in plain.items() if _AVERAGE.search(name.partition(".")[0].lower())}
    rest = {name: tensor for name, tensor in plain.items() if name not in average}
    if kind == EMA or not average:
        yield WeightSet(key, EMA if averaged_by_torch else kind, plain)
        return
    first = next(iter(average)).partition(".")[0]
    yield WeightSet(key, RAW, rest)
    undotted = {name.replace(".", ""): name for name in _without_first(rest)}
    inner = _without_first(average)
    if all(name in undotted for name in inner):  # latent diffusion's LitEma takes the dots out of the names
        inner = {undotted[name]: tensor for name, tensor in inner.items()}
    yield WeightSet(f"{key}.{first}" if key else first, EMA, inner)


def _nameless(mapping: Mapping[str, Any]) -> list[Tensor]:
    """The tensors of an average without names; none in any other mapping."""
    values = mapping.get(_NAMELESS)
    is_list = isinstance(values, list | tuple) and all(isinstance(value, Tensor) for value in values)
    return list(values) if is_list and values is not None else []


def _named_in_order(key: str, tensors: list[Tensor], others: list[WeightSet], source: str) -> WeightSet:
    """The average under the names of the trained parameters beside it, when each has the shape of its place in the list:
    a state dict without buffers lists the parameters in the order of `module.parameters()`."""
    path = f"{key}.{_NAMELESS}" if key else _NAMELESS
    shapes = [tensor.shape for tensor in tensors]
    raw = [one for one in others if one.kind == RAW]
    for one in raw:
        if [tensor.shape for tensor in one.tensors.values()] == shapes:
            return WeightSet(path, EMA, dict(zip(one.tensors, tensors, strict=True)))
    beside = (
        f"{len(raw[0].tensors)} tensors beside it do not have their shapes in that order" if raw else "nothing beside it"
    )
    cure = "call ema.copy_to(model.parameters()) and save model.state_dict()" + ("; or take --weights raw" if raw else "")
    fault = f"the moving average under {path} of {source} is a list of {len(tensors)} tensors without names, and {beside}"
    return WeightSet(path, EMA, {}, f"{fault + ('' if raw else ' names them')}: {cure}")


def _without_first(tensors: Mapping[str, Tensor]) -> dict[str, Tensor]:
    """The tensors without the first part of their names, where that is one and the same."""
    firsts = {name.partition(".")[0] for name in tensors}
    return {name.partition(".")[2]: tensor for name, tensor in tensors.items()} if len(firsts) == 1 else dict(tensors)


def _tensors(mapping: Mapping[str, Any], key: str, source: str) -> dict[str, Tensor]:
    tensors: dict[str, Tensor] = {}
    for name, value in _leaves(mapping):
        if isinstance(value, np.ndarray) and value.dtype.kind in "fiub":
            value = torch.from_numpy(np.array(value))
        if isinstance(value, Tensor):
            tensors[name] = value
        elif name not in _COUNTERS:
            raise CheckpointError(
                f"{source} holds {name!r} of type {type(value).__name__} {f'under {key} ' if key else ''}where a state dict "
                "has tensors: save the weights alone, under the key state_dict"
            )
    return tensors


def _leaves(mapping: Mapping[Any, Any], prefix: str = "") -> Iterator[tuple[str, Any]]:
    """What nested mappings hold, by names with dots. Numbers for keys are the indices of a list."""
    for key, value in mapping.items():
        name = f"{prefix}{key}"
        if isinstance(value, Mapping):
            yield from _leaves(value, f"{name}.")
        else:
            yield name, value


def _is_tensor(value: object) -> bool:
    return isinstance(value, Tensor) or (isinstance(value, np.ndarray) and value.dtype.kind in "fiub" and value.ndim > 0)


def _instead(content: Mapping[Any, Any]) -> str:
    names = ", ".join(f"{key!r} of type {type(value).__name__}" for key, value in list(content.items())[:4])
    return f", but {names}" if names else ""
