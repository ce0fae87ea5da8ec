"""Adding to a bundle that exists: a draft that begins with all its files, published in one step.

Whoever reads the bundle meanwhile sees the old one or the new one. Two writers take turns, and the second sees what the
first added.
"""

import contextlib
import fcntl
import os
from collections.abc import Iterator
from pathlib import Path

from gaussport.export.bundle.draft import Draft, writing_bundle
from gaussport.export.bundle.manifest import Manifest
from gaussport.export.bundle.store import open_bundle


@contextlib.contextmanager
def revising_bundle(path: Path) -> Iterator[tuple[Draft, Manifest]]:
    """Yield a draft that holds the files of the bundle at `path`, each checked by its hash, and their manifest.

    Raises:
        BundleError: a file is damaged, or the bundle cannot be written.
        UsageError: the folder around it cannot be written.
    """
    with _turn(path), writing_bundle(path, overwrite=True) as draft:
        bundle = open_bundle(path, check_hashes=False)
        for name in bundle.manifest.files:
            target = draft.folder / name
            target.parent.mkdir(parents=True, exist_ok=True)
            bundle.copy(name, target)
        yield draft, bundle.manifest


@contextlib.contextmanager
def _turn(path: Path) -> Iterator[None]:
    """Held while a bundle in this folder is rewritten; the lock ends with the process, however it ends."""
    descriptor = os.open(Path(os.path.realpath(path)).parent, os.O_RDONLY | os.O_DIRECTORY)
    try:
        with contextlib.suppress(OSError):  # a filesystem without locks leaves the turn to its users
            fcntl.flock(descriptor, fcntl.LOCK_EX)
        yield
    finally:
        os.close(descriptor)
