"""A folder that appears whole or not at all: made beside its place under a hidden name, then renamed."""

import os
import secrets
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from gaussport.errors import ExportError, UsageError
from gaussport.export.bundle.rename import exchange, rename_new


@contextmanager
def whole_folder(destination: Path, mark: str, overwrite: bool = False) -> Iterator[Path]:
    """Yield the folder to fill; when the block ends well it has the name `destination`.

    `mark` is a path that every such folder holds: with `overwrite` only a folder that has it is replaced, in one step.

    Raises:
        UsageError: the destination exists, or is something else.
        ExportError: it cannot be written.
    """
    target = Path(os.path.realpath(destination))
    if os.path.lexists(target):
        if not overwrite:
            raise UsageError(f"{destination} exists: pass --overwrite or choose another folder")
        if not (target / mark).exists():
            raise UsageError(f"{destination} is not replaced because it has no {mark}: choose another folder")
    draft = target.with_name(f".{target.name[:200]}.{secrets.token_hex(6)}")
    try:
        draft.mkdir()
        yield draft
        if os.path.lexists(target):
            exchange(draft, target)
        else:
            rename_new(draft, target)
    except OSError as error:
        raise ExportError(f"{destination} cannot be written: {error.strerror or error}") from error
    finally:
        shutil.rmtree(draft, ignore_errors=True)
