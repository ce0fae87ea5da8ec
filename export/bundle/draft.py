"""Writing a bundle: in a temporary sibling, hashed, then renamed. Whoever looks sees a whole bundle or none.

A killed writer leaves its hidden sibling behind; the next writer of the same destination sweeps it away.
"""

import contextlib
import fcntl
import glob
import hashlib
import os
import secrets
import shutil
import zipfile
from collections.abc import Callable, Iterator
from pathlib import Path

from gaussport.errors import BundleError, UsageError
from gaussport.export.bundle.manifest import MANIFEST_FILE, FileRecord, Manifest
from gaussport.export.bundle.rename import exchange, rename_new, sync_folder

_LONG_NAME_BYTES = 200  # file systems take 255, and a draft's name is longer than its destination's
_ZIP_EPOCH = (1980, 1, 1, 0, 0, 0)  # the earliest time a zip can hold: equal bundles give equal bytes


class Draft:
    """A bundle in the making. Put its files into `folder`, then call `finish` as the last thing."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.manifest: Manifest | None = None

    def finish(self, make_manifest: Callable[[dict[str, FileRecord]], Manifest]) -> Manifest:
        """Hash every file in the folder, ask for the manifest that lists them, and write it last."""
        records = {path.relative_to(self.folder).as_posix(): _record(path) for path in _files(self.folder)}
        records.pop(MANIFEST_FILE, None)
        manifest = make_manifest(records)
        if manifest.files != records:
            raise BundleError("the manifest does not list exactly the files that were written: pass `files` on unchanged")
        text = manifest.model_dump_json(indent=2) + "\n"
        (self.folder / MANIFEST_FILE).write_text(text, encoding="utf-8")
        self.manifest = manifest
        return manifest


@contextlib.contextmanager
def writing_bundle(destination: Path, overwrite: bool = False) -> Iterator[Draft]:
    """Yield a `Draft`; when the block ends well the bundle appears at `destination`, a folder or a `.zip`, at once.

    With `overwrite` an existing bundle is replaced in one step; anything that is not a bundle is never touched.
    When the block raises, nothing is left and what was there before is unchanged.
    """
    target = Path(os.path.realpath(destination))
    _refuse_before_work(destination, target, overwrite)
    _sweep(target)
    try:
        folder, descriptor = _locked_folder(target)
    except OSError as error:
        raise BundleError(f"{destination} cannot be written: {error.strerror}") from error
    packed = folder.with_name(f"{folder.name}.zip")
    try:
        draft = Draft(folder)
        yield draft
        if draft.manifest is None:
            raise BundleError(f"{destination} was not finished: call draft.finish(...) as the last step")
        try:
            _publish(folder, packed, target, overwrite)
        except FileExistsError as error:
            raise BundleError(f"{destination} was made by somebody else meanwhile: remove it or pass --overwrite") from error
        except OSError as error:
            raise BundleError(f"{destination} cannot be written: {error.strerror}") from error
    finally:
        packed.unlink(missing_ok=True)
        shutil.rmtree(folder, ignore_errors=True)
        os.close(descriptor)


def looks_like_a_bundle(path: Path) -> bool:
    """Whether a folder or a zip has a `bundle.json`; it may still be damaged."""
    if path.is_dir():
        return (path / MANIFEST_FILE).is_file()
    if not path.is_file():  # a device or a pipe may never end
        return False
    try:
        with zipfile.ZipFile(path) as archive:
            return MANIFEST_FILE in archive.namelist()
    except (OSError, zipfile.BadZipFile):
        return False


def _refuse_before_work(destination: Path, target: Path, overwrite: bool) -> None:
    parent = target.parent
    try:
        target.lstat()
    except (FileNotFoundError, NotADirectoryError):  # what is wrong with the folder is said below
        pass
    except OSError as error:  # a name too long, a loop of links
        raise UsageError(f"{destination} cannot be written: {error.strerror or error}") from None
    if not parent.exists():
        raise UsageError(f"{destination} cannot be written: the folder {destination.parent} does not exist, make it first")
    if not parent.is_dir():
        raise UsageError(f"{destination} cannot be written: {destination.parent} is not a folder")
    if target.exists():
        if not overwrite:
            raise UsageError(f"{destination} exists: choose another path or pass --overwrite")
        if not looks_like_a_bundle(target):
            kind = "folder without bundle.json" if target.is_dir() else "file that is not a bundle"
            raise UsageError(f"{destination} is a {kind}, which is never overwritten: choose another path")
        if target.is_dir() == (target.suffix == ".zip"):
            kind = "a folder" if target.is_dir() else "a zip"
            raise UsageError(f"{destination} is {kind} and would become the other kind: choose another path")
    if not os.access(parent, os.W_OK | os.X_OK):
        raise UsageError(f"{destination} cannot be written: the folder {destination.parent} is not writable")


def _partial(target: Path) -> str:
    """How the names of this destination's drafts begin: as its own, or its hash where that would be too long a name."""
    name = os.fsencode(target.name)
    if len(name) > _LONG_NAME_BYTES:
        return f".{hashlib.sha256(name).hexdigest()[:32]}.partial-"
    return f".{target.name}.partial-"


def _publish(folder: Path, packed: Path, target: Path, overwrite: bool) -> None:
    finished = folder
    if target.suffix == ".zip":
        _pack(folder, packed)
        finished = packed
    else:
        for path in _files(folder):
            _sync(path)
        for path in (*(p for p in folder.rglob("*") if p.is_dir()), folder):
            sync_folder(path)
    if not (overwrite and target.exists()):
        rename_new(finished, target)
    elif finished is packed:
        packed.replace(target)
    else:
        exchange(folder, target)
    sync_folder(target.parent)


def _pack(folder: Path, packed: Path) -> None:
    """One zip, stored, `bundle.json` first and then by name."""
    names = sorted((path.relative_to(folder).as_posix() for path in _files(folder)), key=lambda n: (n != MANIFEST_FILE, n))
    with zipfile.ZipFile(packed, "w", zipfile.ZIP_STORED) as archive:
        for name in names:
            entry = zipfile.ZipInfo(name, _ZIP_EPOCH)
            entry.external_attr = 0o644 << 16
            entry.file_size = (folder / name).stat().st_size
            with archive.open(entry, "w") as sink, (folder / name).open("rb") as source:
                shutil.copyfileobj(source, sink, 1 << 20)
    _sync(packed)


def _files(folder: Path) -> list[Path]:
    """Every file below the folder, by name. Links are refused: their target would not travel with the bundle."""
    found = sorted(path for path in folder.rglob("*") if path.is_symlink() or not path.is_dir())
    for path in found:
        if path.is_symlink() or not path.is_file():
            raise BundleError(f"{path.relative_to(folder)} in the draft is not a plain file: copy its content instead")
    return found


def _record(path: Path) -> FileRecord:
    with path.open("rb") as file:
        return FileRecord(bytes=path.stat().st_size, sha256=hashlib.file_digest(file, "sha256").hexdigest())


def _sync(path: Path) -> None:
    with path.open("rb") as file:
        os.fsync(file.fileno())


def _locked_folder(target: Path) -> tuple[Path, int]:
    """A new folder beside the destination, and the descriptor that holds its lock. Before it is locked it looks like a dead
    writer's, and another writer of the same destination may sweep it away: then the next one is made."""
    while True:
        folder = target.with_name(f"{_partial(target)}{secrets.token_hex(6)}")
        folder.mkdir()
        try:
            descriptor = os.open(folder, os.O_RDONLY | os.O_DIRECTORY)
        except FileNotFoundError:
            continue
        fcntl.flock(descriptor, fcntl.LOCK_EX)
        if folder.is_dir():
            return folder, descriptor
        os.close(descriptor)


def _sweep(target: Path) -> None:
    """Remove what killed writers of this destination left; a living writer holds a lock on its folder."""
    for folder in sorted(target.parent.glob(f"{glob.escape(_partial(target))}*")):
        with contextlib.suppress(OSError):
            descriptor = os.open(folder, os.O_RDONLY)
            try:
                fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
                if folder.is_dir():
                    shutil.rmtree(folder, ignore_errors=True)
                elif not folder.with_suffix("").exists():
                    folder.unlink()
            finally:
                os.close(descriptor)
