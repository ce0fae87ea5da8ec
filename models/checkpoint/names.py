"""Names as the model has them: without what wrappers put before them, and changed as the caller says."""

import re
from collections.abc import Collection, Mapping
from dataclasses import dataclass

from torch import Tensor

from gaussport.errors import CheckpointError

# Wrappers of torch, whose names no module of a model's own has: anywhere, where everything on that level has them.
_WRAPPERS = ("_orig_mod", "_fsdp_wrapped_module", "_checkpoint_wrapped_module", "_forward_module")
# Attributes that hold the whole model: before all names, and only there.
_ROOTS = ("module", "model", "net")


@dataclass(frozen=True)
class Named:
    """Tensors by name, what was taken off before the names, and the names that the caller's rules left out."""

    tensors: dict[str, Tensor]
    prefixes: tuple[str, ...] = ()
    left_out: tuple[str, ...] = ()


def named(
    tensors: Mapping[str, Tensor],
    rules: tuple[tuple[str, str], ...],
    source: str,
    expected: Collection[str] | None = None,
) -> Named:
    """The tensors by the model's own names: wrappers off, then the caller's rules, then wrappers off again.

    `expected` are the names of the module that will take them, when it is not ours: names that fit it are left as they are.

    Raises:
        CheckpointError: only some names are wrapped, a rule changes none, two names become one, or none is left.
    """
    stripped, first = _stripped(dict(tensors), expected)
    renamed, left_out = _renamed(stripped, rules, source)
    stripped, second = _stripped(renamed, expected) if rules else (renamed, ())
    if expected is None:
        _check_half_wrapped(stripped, source)
    return Named(stripped, (*first, *second), left_out)


def _stripped(tensors: dict[str, Tensor], expected: Collection[str] | None) -> tuple[dict[str, Tensor], tuple[str, ...]]:
    taken: list[str] = []
    while tensors and (expected is None or not set(expected) <= tensors.keys()):
        firsts = {name.partition(".")[0] for name in tensors}
        first = next(iter(firsts))
        if len(firsts) > 1 or first not in _ROOTS + _WRAPPERS or not all("." in name for name in tensors):
            break
        tensors = {name.partition(".")[2]: tensor for name, tensor in tensors.items()}
        taken.append(f"{first}.")
    return _unwrapped_inside(tensors), tuple(taken)


def _unwrapped_inside(tensors: dict[str, Tensor]) -> dict[str, Tensor]:
    """Without the wrappers of single blocks: `blocks.0._orig_mod.attn` where all of `blocks.0` is so."""
    for wrapper in _WRAPPERS:
        parents = {name.split(f".{wrapper}.")[0] for name in tensors if f".{wrapper}." in name}
        whole = {
            parent
            for parent in parents
            if all(name.startswith(f"{parent}.{wrapper}.") for name in tensors if name.startswith(f"{parent}."))
        }
        if whole:
            tensors = {_without(name, wrapper, whole): tensor for name, tensor in tensors.items()}
    return tensors


def _without(name: str, wrapper: str, parents: set[str]) -> str:
    parent, found, rest = name.partition(f".{wrapper}.")
    return f"{parent}.{rest}" if found and parent in parents else name


def _renamed(
    tensors: dict[str, Tensor], rules: tuple[tuple[str, str], ...], source: str
) -> tuple[dict[str, Tensor], tuple[str, ...]]:
    names = {name: name for name in tensors}
    for old, new in rules:
        changed = {name: re.sub(old, new, current) for name, current in names.items()}
        if changed == names:
            raise CheckpointError(
                f"the rename {old}={new} changes no name in {source}, whose first is {next(iter(names.values()))}: inspect "
                "prints them"
            )
        names = changed
    origins: dict[str, str] = {}
    for name, new in names.items():
        if new and origins.setdefault(new, name) != name:
            raise CheckpointError(f"the renames make {origins[new]} and {name} of {source} both {new}: be narrower")
    if tensors and not origins:
        raise CheckpointError(f"the renames leave out all {len(tensors)} names in {source}: be narrower")
    return {new: tensors[name] for new, name in origins.items()}, tuple(name for name, new in names.items() if not new)


def _check_half_wrapped(tensors: dict[str, Tensor], source: str) -> None:
    wrapped = [name for name in tensors if name.partition(".")[0] in _WRAPPERS + _ROOTS]
    if wrapped and len(wrapped) < len(tensors):
        prefix = wrapped[0].partition(".")[0] + "."
        other = next(name for name in tensors if name not in wrapped)
        raise CheckpointError(
            f"{len(wrapped)} of {len(tensors)} names in {source} begin with {prefix} ({wrapped[0]}) and others do not "
            f"({other}): a prefix is taken off only where all have it, change names with --rename 'OLD=NEW'"
        )
