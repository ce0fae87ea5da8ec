"""What the caller wishes, checked before any work and before torch is imported."""

import os
import re
import stat
from datetime import UTC, datetime
from pathlib import Path

from gaussport.errors import UsageError

LARGEST_BATCH = 1024
DEFAULT_MAX_BATCH = 32

_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,127}")
_NAME_RULE = "letters, digits, '.', '_' and '-', at most 128, beginning with a letter or digit"


def check_max_batch(max_batch: int) -> None:
    """Raise a UsageError unless a proof can run a batch of that size."""
    if not 1 <= max_batch <= LARGEST_BATCH:
        raise UsageError(f"the largest batch is {max_batch} but must be from 1 to {LARGEST_BATCH}")


def model_name(wish: str | None, checkpoint: Path) -> str:
    """The name wished for, else the checkpoint's file name with what a name may not hold replaced by '-'.

    Raises:
        UsageError: the wish is not a name, or nothing is left of the file name.
    """
    if wish is not None:
        if not _NAME.fullmatch(wish):
            raise UsageError(f"the name {wish!r} cannot be used in URLs: use {_NAME_RULE}")
        return wish
    name = re.sub(r"[^A-Za-z0-9._-]+", "-", checkpoint.stem).strip("-._")[:128]
    if not _NAME.fullmatch(name):
        raise UsageError(f"no model name can be made of the file name {checkpoint.name!r}: give one with --name")
    return name


def check_picture_folder(option: str, source: str | None) -> None:
    """Raise a UsageError unless there is such a folder, or none was named."""
    if source is not None and not (source and Path(source).is_dir()):
        raise UsageError(f"{option} is {source!r}, which is no folder: give a folder of pictures as clients send them")


def check_plain(path: Path) -> None:
    """Raise a UsageError for a device, a pipe or a socket: reading one may never end, and none becomes a bundle."""
    try:
        mode = path.stat().st_mode
    except (OSError, ValueError):  # missing, or a name that cannot be: whoever opens it says so
        return
    if not stat.S_ISREG(mode) and not stat.S_ISDIR(mode):
        raise UsageError(f"{path} is neither a file nor a folder: choose another path")


def check_not_the_input(destination: Path, *inputs: Path | None) -> None:
    """Raise a UsageError when writing would replace one of the files that are read."""
    for path in inputs:
        if path is None:
            continue
        try:
            same = destination.samefile(path)
        except OSError:  # one of them does not exist, or its name is too long to
            continue
        if same:
            raise UsageError(f"{destination} is the file that would be read, {path}: choose another path for the bundle")


def creation_time() -> datetime:
    """The time, to the second; SOURCE_DATE_EPOCH (reproducible-builds.org) makes it a chosen one."""
    chosen = os.environ.get("SOURCE_DATE_EPOCH")
    if chosen is None:
        return datetime.now(UTC).replace(microsecond=0)
    try:
        return datetime.fromtimestamp(int(chosen), UTC)
    except (ValueError, OverflowError, OSError):
        raise UsageError(f"SOURCE_DATE_EPOCH is {chosen!r} but must be whole seconds since 1970") from None
