"""Trained classifiers that ship with the package, small enough to read in a diff: a safetensors file and a card each."""

from pathlib import Path

from gaussport.errors import UsageError

_FOLDER = Path(__file__).parent


def names() -> list[str]:
    """Every shipped classifier's name."""
    return sorted(file.stem for file in _FOLDER.glob("*.safetensors"))


def path(name: str) -> Path:
    """The checkpoint file of the shipped classifier `name`; its card lies beside it, with the suffix .md.

    Raises:
        UsageError: nothing of that name ships.
    """
    if name not in names():
        raise UsageError(f"the zoo has no {name!r}; choose one of {', '.join(names())}")
    return _FOLDER / f"{name}.safetensors"
