"""Checkpoints in several files with an index: `{"weight_map": {tensor: file}}`, as Hugging Face writes them."""

import json
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from gaussport.errors import CheckpointError
from gaussport.models.checkpoint.contents import Stored
from gaussport.models.checkpoint.folders import INDEXES, shown

_LIMIT_BYTES = 32 << 20


def read_sharded(path: Path, read_shard: Callable[[Path], Stored]) -> Stored:
    """The tensors of all the files that the index at `path` names, each read by `read_shard`.

    Raises:
        CheckpointError: the index is none, names a file outside its folder or one that is missing, or index and shards
            disagree on where a tensor lies.
    """
    name = shown(path.name)
    weight_map = _weight_map(path)
    tensors: dict[str, Any] = {}
    description: dict[str, Any] = {}
    total, words = path.stat().st_size, ""
    shards = sorted(set(weight_map.values()))
    for shard in shards:
        if Path(shard).name != shard or shard.endswith(INDEXES):
            raise CheckpointError(f"{name} names the shard {shard!r}, which is no shard beside it: do not use this index")
        if not (path.parent / shard).is_file():
            raise CheckpointError(f"{name} names {len(shards)} shards but {shard} is missing: copy all into one folder")
    for shard in shards:
        stored = read_shard(path.parent / shard)
        wanted = {tensor for tensor, home in weight_map.items() if home == shard}
        missing, extra = sorted(wanted - stored.content.keys()), sorted(stored.content.keys() - wanted)
        if missing or extra:
            fault = f"lacks {missing[0]}, which should be" if missing else f"holds {extra[0]}, which should not be"
            raise CheckpointError(f"{shard} {fault} in it by {name}: index and shards are of different checkpoints")
        tensors.update(stored.content)
        description.update({} if stored.description is stored.content else stored.description)
        total, words = total + stored.total_bytes, stored.format
    return Stored(tensors, description, f"{words}, {len(shards)} shards", total)


def shards_of(path: Path) -> list[Path]:
    """The files that the index at `path` names, by name."""
    return [path.parent / shard for shard in sorted(set(_weight_map(path).values()))]


def _weight_map(path: Path) -> Mapping[str, str]:
    name = shown(path.name)
    if path.stat().st_size > _LIMIT_BYTES:
        raise CheckpointError(f"the index {name} is larger than {_LIMIT_BYTES >> 20} MiB: give the checkpoint's own")
    try:
        document = json.loads(path.read_bytes())
    except (ValueError, RecursionError):
        raise CheckpointError(f"the index {name} is not JSON: copy it again") from None
    found = document.get("weight_map") if isinstance(document, dict) else None
    if not isinstance(found, dict) or not found or not all(isinstance(shard, str) and shard for shard in found.values()):
        raise CheckpointError(f"the index {name} has no weight_map from tensors to files: copy it again")
    return found
