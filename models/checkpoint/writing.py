"""A checkpoint to a file, whole or not at all."""

import json
import os
from pathlib import Path

from safetensors.torch import save

from gaussport.errors import CheckpointError
from gaussport.models.checkpoint.contents import AnyCheckpoint
from gaussport.models.checkpoint.description import to_description
from gaussport.models.checkpoint.safetensors_file import METADATA_KEY


def write_checkpoint(path: Path, checkpoint: AnyCheckpoint) -> None:
    """Write `checkpoint` as safetensors; a file that was at `path` stays until the new one is whole. Equal checkpoints
    give equal bytes.

    Raises:
        CheckpointError: the file cannot be written.
    """
    metadata = {METADATA_KEY: json.dumps(to_description(checkpoint), ensure_ascii=False, sort_keys=True)}
    # Parameters may share memory or be views; the format knows neither.
    tensors = {name: tensor.detach().cpu().contiguous().clone() for name, tensor in checkpoint.state_dict.items()}
    write_atomically(Path(path), save(tensors, metadata))


def write_atomically(path: Path, data: bytes) -> None:
    """Write `data` to a temporary sibling, flush it to the disk, and rename it to `path`.

    Raises:
        CheckpointError: the folder is missing or not writable, `path` is a folder, or the disk is full.
    """
    temporary = path.with_name(f".{os.getpid()}.partial")
    try:
        if path.is_dir():
            raise IsADirectoryError(None, "it is a folder")
        with temporary.open("wb") as file:
            file.write(data)
            file.flush()
            os.fsync(file.fileno())
        temporary.replace(path)
    except OSError as error:
        temporary.unlink(missing_ok=True)
        raise CheckpointError(f"{path} cannot be written: {(error.strerror or str(error)).lower()}") from None
    except BaseException:
        temporary.unlink(missing_ok=True)
        raise
