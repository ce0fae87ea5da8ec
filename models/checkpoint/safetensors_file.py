"""Safetensors files: tensors, and one metadata key `gaussport` with the rest as JSON."""

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from safetensors import SafetensorError, safe_open

from gaussport.errors import CheckpointError
from gaussport.models.checkpoint.contents import Stored
from gaussport.models.checkpoint.folders import shown

METADATA_KEY = "gaussport"


def read_safetensors(path: Path) -> Stored:
    """The tensors and the description in the safetensors file at `path`.

    Raises:
        CheckpointError: header and file disagree, or the metadata is not JSON.
    """
    name = shown(path.name)
    try:
        # By descriptor: the library takes no path that is not UTF-8.
        with path.open("rb") as held, safe_open(f"/dev/fd/{held.fileno()}", framework="pt", device="cpu") as file:
            metadata = file.metadata() or {}
            tensors = {name: file.get_tensor(name) for name in file.keys()}  # noqa: SIM118 - not a dict
    except SafetensorError as error:
        if "not fully covered" in str(error):
            raise CheckpointError(
                f"{name} is truncated, or its header does not describe it ({error}): download or copy it again"
            ) from None
        raise CheckpointError(f"{name} is a damaged safetensors file ({error}): download or copy it again") from None
    except (OSError, RuntimeError, ValueError, TypeError, KeyError, OverflowError) as error:
        # Sizes and dtypes that the format allows and torch does not.
        raise CheckpointError(f"{name} cannot be read as safetensors: {_first_line(error)}") from None
    # safetensors.torch.save_model drops a tensor that is another one, and notes which.
    ties = {dropped: kept for dropped, kept in metadata.items() if kept in tensors and dropped not in tensors}
    description = _description(name, metadata.get(METADATA_KEY))
    return Stored(tensors, description, "safetensors", path.stat().st_size, ties=ties)


def _description(name: str, text: str | None) -> Mapping[str, Any]:
    if text is None:
        return {}
    try:
        document = json.loads(text)
    except (ValueError, RecursionError) as error:
        raise CheckpointError(f"the {METADATA_KEY} metadata of {name} is not JSON: {error}") from None
    if not isinstance(document, dict):
        raise CheckpointError(f"the {METADATA_KEY} metadata of {name} is not a JSON object")
    return document


def _first_line(error: Exception) -> str:
    return str(error).partition("\n")[0]
