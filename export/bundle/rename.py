"""Renames that never leave a name pointing at half of something: refuse to replace, or exchange two names at once."""

import contextlib
import ctypes
import errno
import os
from pathlib import Path

_AT_FDCWD = -100
_RENAME_NOREPLACE = 1
_RENAME_EXCHANGE = 2
_UNSUPPORTED = {errno.ENOSYS, errno.EINVAL, errno.EOPNOTSUPP, errno.EPERM}


def rename_new(source: Path, destination: Path) -> None:
    """Give `source` the name `destination`; FileExistsError when somebody took that name in the meantime."""
    if not _renameat2(source, destination, _RENAME_NOREPLACE):
        if os.path.lexists(destination):
            raise FileExistsError(errno.EEXIST, os.strerror(errno.EEXIST), str(destination))
        source.rename(destination)


def exchange(source: Path, destination: Path) -> None:
    """Swap two existing names. Where the filesystem cannot, two renames do it, undone if the second fails."""
    if _renameat2(source, destination, _RENAME_EXCHANGE):
        return
    aside = source.with_name(f"{source.name}.old")
    destination.rename(aside)
    try:
        source.rename(destination)
    except OSError:
        aside.rename(destination)
        raise
    aside.rename(source)


def sync_folder(folder: Path) -> None:
    """Make the names in a folder survive a power cut; some filesystems cannot sync a folder, and need not."""
    descriptor = os.open(folder, os.O_RDONLY | os.O_DIRECTORY)
    try:
        with contextlib.suppress(OSError):
            os.fsync(descriptor)
    finally:
        os.close(descriptor)


def _renameat2(source: Path, destination: Path, flags: int) -> bool:
    """Linux's rename with flags; False when this libc, kernel or filesystem does not offer it."""
    call = getattr(ctypes.CDLL(None, use_errno=True), "renameat2", None)
    if call is None:
        return False
    call.argtypes = [ctypes.c_int, ctypes.c_char_p, ctypes.c_int, ctypes.c_char_p, ctypes.c_uint]
    if call(_AT_FDCWD, os.fsencode(source), _AT_FDCWD, os.fsencode(destination), flags) == 0:
        return True
    number = ctypes.get_errno()
    if number in _UNSUPPORTED:
        return False
    raise OSError(number, os.strerror(number), str(destination))
