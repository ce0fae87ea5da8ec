"""Class labels from a file: one a line, or a JSON list."""

import json
from pathlib import Path

from gaussport.errors import UsageError

_LIMIT_BYTES = 16 << 20


def read_labels(path: Path) -> list[str]:
    """The labels in the file, in the order of the head's rows.

    Raises:
        UsageError: it cannot be read, is not text, or holds no labels.
    """
    try:
        with path.open("rb") as file:
            data = file.read(_LIMIT_BYTES + 1)
    except OSError as error:
        raise UsageError(f"the labels file {path} cannot be read: {error.strerror}") from error
    if len(data) > _LIMIT_BYTES:
        raise UsageError(f"the labels file {path} is larger than {_LIMIT_BYTES >> 20} MiB: give one label a line")
    try:
        text = data.decode("utf-8-sig")
    except UnicodeDecodeError:
        raise UsageError(f"the labels file {path} is not UTF-8 text: give one label a line, or a JSON list") from None
    labels = _from_json(path, text) if text.lstrip().startswith("[") else _from_lines(text)
    if not labels:
        raise UsageError(f"the labels file {path} holds no labels: give one a line, or a JSON list")
    return labels


def _from_lines(text: str) -> list[str]:
    """Blank lines at the end are an editor's; one in the middle would shift every label after it, and is kept."""
    return [line.strip() for line in text.strip().split("\n")] if text.strip() else []


def _from_json(path: Path, text: str) -> list[str]:
    try:
        labels = json.loads(text)
    except (ValueError, RecursionError):
        return _from_lines(text)  # a label may well begin with a bracket
    if not isinstance(labels, list) or not all(isinstance(label, str) for label in labels):
        raise UsageError(f"the labels file {path} must be a JSON list of names, in the order of the head's rows")
    return labels
