"""Which configuration field a wrong shape points to, found by trying: whatever field moves the axis that differs."""

from collections.abc import Iterator
from dataclasses import fields, replace

import torch

from gaussport.errors import ConfigurationError
from gaussport.models.checkpoint.kinds import Config, module_of
from gaussport.models.config import ClassifierConfig


def fields_behind(config: Config, parameter: str, stored: tuple[int, ...]) -> str:
    """The fields, with their values, that decide the axes of `parameter` in which the shape `stored` differs."""
    configured = _shape(config, parameter)
    if configured is None or len(configured) != len(stored):
        return "whether it belongs to this configuration"
    axes = [axis for axis, (ours, theirs) in enumerate(zip(configured, stored, strict=True)) if ours != theirs]
    found = []
    for field, value, changed in _neighbours(config):
        shape = _shape(changed, parameter)
        if shape is not None and len(shape) == len(stored) and any(shape[axis] != configured[axis] for axis in axes):
            found.append(f"{field}, which is {value}")
    return " or ".join(found) or "the configuration"


def _neighbours(config: Config) -> Iterator[tuple[str, object, Config]]:
    """Each numeric field's name and value, and the configuration with that field alone doubled, where that is possible."""
    changes: list[tuple[str, object, dict[str, object]]] = []
    if isinstance(config, ClassifierConfig):
        doubled = tuple(2 * side for side in config.image_size)
        changes.append(("image_size", list(config.image_size), {"image_size": doubled}))
    for field in fields(config):
        value = getattr(config, field.name)
        if isinstance(value, int | float) and field.name != "depth":
            changes.append((field.name, value, {field.name: 2 * value}))
    for field in fields(config.attention):
        value = getattr(config.attention, field.name)
        if isinstance(value, int | float) and not isinstance(value, bool):
            attention = replace(config.attention, **{field.name: 2 * value})  # type: ignore[arg-type]
            changes.append((f"attention.{field.name}", value, {"attention": attention}))
    for name, value, change in changes:
        try:
            yield name, value, replace(config, **change)  # type: ignore[arg-type]
        except ConfigurationError:
            continue


def _shape(config: Config, parameter: str) -> tuple[int, ...] | None:
    with torch.device("meta"):
        tensor = module_of(config).state_dict().get(parameter)
    return None if tensor is None else tuple(tensor.shape)
