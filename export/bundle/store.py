"""A bundle on disk, a folder or one `.zip` of it: open it, read its files, and (from `draft`) write it.

Nothing is believed before it is checked: names stay inside the bundle, sizes are compared before reading, and `read`
compares the hash of the very bytes that it returns.
"""

import hashlib
import json
import mmap
import zipfile
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path, PurePosixPath
from typing import IO

from pydantic import ValidationError

from gaussport.errors import BundleError
from gaussport.export.bundle.draft import Draft, writing_bundle
from gaussport.export.bundle.front import KINDS
from gaussport.export.bundle.manifest import MANIFEST_FILE, SCHEMA_VERSION, FileRecord, Manifest

__all__ = ["Bundle", "Content", "Draft", "open_bundle", "writing_bundle"]

Content = bytes | mmap.mmap
"""A file's content: in memory, or mapped from the disk and then read page by page."""

_MANIFEST_LIMIT_BYTES = 32 << 20


@dataclass(frozen=True)
class Bundle:
    """An opened bundle: where it is and what it says of itself."""

    path: Path
    manifest: Manifest

    def read(self, name: str) -> bytes:
        """The bytes of one file, after their hash was compared with the manifest's."""
        record = self._record(name)
        with _member(self.path, name, record) as file:
            data = file.read()
        if hashlib.sha256(data).hexdigest() != record.sha256:
            raise BundleError(_damaged(self.path, name))
        return data

    def content(self, name: str) -> Content:
        """The content of one file, after its hash was compared: mapped from a folder, which costs no memory, or read from
        a zip. What is returned is what was hashed, whatever happens to the name meanwhile."""
        record = self._record(name)
        if not self.path.is_dir() or record.bytes == 0:
            return self.read(name)
        with _member(self.path, name, record) as file:
            mapped = mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ)
        if hashlib.sha256(mapped).hexdigest() != record.sha256:
            raise BundleError(_damaged(self.path, name))
        return mapped

    def check(self, name: str) -> None:
        """Compare one file with its hash, without holding it in memory."""
        record = self._record(name)
        with _member(self.path, name, record) as file:
            found = hashlib.sha256()
            while block := file.read(1 << 20):
                found.update(block)
        if found.hexdigest() != record.sha256:
            raise BundleError(_damaged(self.path, name))

    def copy(self, name: str, target: Path) -> None:
        """Write one file to `target`, hashing what is written; nothing is left there when the hash differs."""
        record = self._record(name)
        found = hashlib.sha256()
        with _member(self.path, name, record) as file, target.open("wb") as copied:
            while block := file.read(1 << 20):
                found.update(block)
                copied.write(block)
        if found.hexdigest() != record.sha256:
            target.unlink()
            raise BundleError(_damaged(self.path, name))

    def _record(self, name: str) -> FileRecord:
        record = self.manifest.files.get(name)
        if record is None:
            known = ", ".join(sorted(self.manifest.files))
            raise BundleError(f"{self.path} has no file {name}: its {MANIFEST_FILE} lists {known}")
        return record


def open_bundle(path: Path, check_hashes: bool = True) -> Bundle:
    """Open a bundle. Without `check_hashes` only presence and size of its files are compared; `read` still checks."""
    path = Path(path)
    bundle = Bundle(path, _parse_manifest(path, _manifest_bytes(path)))
    for name, record in bundle.manifest.files.items():
        _refuse_outside(path, name)
        if check_hashes:
            bundle.check(name)
        else:
            with _member(path, name, record):
                pass
    return bundle


def _manifest_bytes(path: Path) -> bytes:
    try:
        return _read_manifest(path)
    except PermissionError as error:  # already asking whether a file is there can be forbidden
        raise BundleError(
            f"{path} cannot be read: {error.filename} is closed to this user, let it read the bundle"
        ) from error


def _read_manifest(path: Path) -> bytes:
    if not path.exists():
        raise BundleError(f"{path} does not exist: make a bundle with gaussport export CHECKPOINT -o {path}")
    if path.is_dir():
        manifest = path / MANIFEST_FILE
        if not manifest.is_file():
            raise BundleError(f"{path} is not a bundle: it has no {MANIFEST_FILE}")
        try:
            with manifest.open("rb") as file:
                data = file.read(_MANIFEST_LIMIT_BYTES + 1)
        except OSError as error:
            raise BundleError(f"{manifest} cannot be read: {error.strerror}") from error
    elif not path.is_file():  # a device or a pipe may never end
        raise BundleError(f"{path} is not a bundle: it is neither a folder nor a file")
    else:
        try:
            with zipfile.ZipFile(path) as archive:
                names = archive.namelist()
                for name in names:
                    _refuse_outside(path, name)
                if len(set(names)) != len(names):
                    raise BundleError(f"{path} holds two files of one name: export it again")
                with archive.open(MANIFEST_FILE) as file:
                    data = file.read(_MANIFEST_LIMIT_BYTES + 1)
        except KeyError:
            raise BundleError(f"{path} is not a bundle: the zip has no {MANIFEST_FILE}") from None
        except _ZIP_FAULTS as error:
            raise BundleError(f"{path} is not a bundle: it is neither a folder nor a whole zip file") from error
    if len(data) > _MANIFEST_LIMIT_BYTES:
        raise BundleError(f"{path} is not a bundle: its {MANIFEST_FILE} is larger than {_MANIFEST_LIMIT_BYTES >> 20} MiB")
    return data


_ZIP_FAULTS = (OSError, zipfile.BadZipFile, zipfile.LargeZipFile, NotImplementedError, RuntimeError, EOFError)
"""What zipfile raises for foreign, truncated, encrypted or oddly compressed archives."""


def _parse_manifest(path: Path, data: bytes) -> Manifest:
    try:
        content = json.loads(data)
    except (ValueError, RecursionError) as error:
        raise BundleError(f"{path} is damaged: its {MANIFEST_FILE} is not JSON, export the bundle again") from error
    version = content.get("schema_version") if isinstance(content, dict) else None
    if isinstance(version, int) and version > SCHEMA_VERSION:
        raise BundleError(
            f"{path} was written by a newer gaussport: its schema version is {version} and this one reads up to "
            f"{SCHEMA_VERSION}, upgrade gaussport"
        )
    try:
        # Through the JSON text, so that strict JSON types (tuples from arrays, times from strings) are what is checked.
        return Manifest.model_validate_json(data)
    except ValidationError as error:
        first = error.errors(include_url=False, include_input=False)[0]
        where = ".".join(str(part) for part in first["loc"] if part not in KINDS) or "the whole"
        fault = first["msg"].removeprefix("Value error, ")  # of our own sentences, without the library's words before them
        raise BundleError(f"{path} has a {MANIFEST_FILE} that cannot be used: {where}: {fault}") from error


@contextmanager
def _member(path: Path, name: str, record: FileRecord) -> Iterator[IO[bytes]]:
    """One file of the bundle, opened, its size already compared."""
    try:
        if path.is_dir():
            with (path / name).open("rb") as file:
                _compare_size(path, name, file.seek(0, 2), record)
                file.seek(0)
                yield file
        else:
            with zipfile.ZipFile(path) as archive, archive.open(name) as member:
                _compare_size(path, name, archive.getinfo(name).file_size, record)
                yield member
    except (FileNotFoundError, KeyError, IsADirectoryError, NotADirectoryError):
        raise BundleError(f"{path} lacks its file {name}: copy the whole bundle or export it again") from None
    except zipfile.BadZipFile as error:
        raise BundleError(_damaged(path, name)) from error
    except _ZIP_FAULTS as error:
        raise BundleError(f"{name} in {path} cannot be read: {error}") from error


def _compare_size(path: Path, name: str, size: int, record: FileRecord) -> None:
    if size != record.bytes:
        raise BundleError(f"{name} in {path} has {size} bytes and should have {record.bytes}: copy the bundle again")


def _refuse_outside(path: Path, name: str) -> None:
    """A bundle's files lie inside it: no absolute names, no `..`, no links that lead out (but see `_homes`)."""
    parts = PurePosixPath(name).parts
    if not parts or name.startswith("/") or ".." in parts or "\\" in name or "\0" in name:
        raise BundleError(f"{path} names the file {name!r}, which lies outside it: do not use this bundle")
    if path.is_dir() and not any((path / name).resolve().is_relative_to(home) for home in _homes(path.resolve())):
        raise BundleError(f"{path} has the file {name!r} as a link that leads outside it: do not use this bundle")


def _homes(folder: Path) -> Iterator[Path]:
    """Where the files of a bundle in `folder` may really lie: in it, or among the blobs of the download cache that it is a
    snapshot of (`snapshots/<revision>/…` beside `blobs/`, as huggingface_hub lays it out)."""
    yield folder
    for parent in folder.parents:
        if parent.name == "snapshots":
            yield parent.parent / "blobs"


def _damaged(path: Path, name: str) -> str:
    return f"{name} in {path} differs from its hash in {MANIFEST_FILE}: copy or export the bundle again"
