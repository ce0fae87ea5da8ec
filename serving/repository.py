"""Where bundles lie and which are there now: the ones named on the command line, and those of a models directory.

    MODELS_DIR/NAME/VERSION/        a bundle, or a folder or zip of one inside; VERSION is a whole number

In a models directory the folders name the model and its version, whatever the bundle was exported as. A scan reads
manifests at most, and those again only when a file of the bundle changed.
"""

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from itertools import islice
from pathlib import Path

from gaussport.errors import BundleError, GaussportError, UsageError
from gaussport.export.bundle.manifest import MANIFEST_FILE
from gaussport.export.bundle.store import Bundle, open_bundle

Fingerprint = tuple[tuple[str, int, int, int], ...]
_MOST_FILES = 10_000
_NAME, _VERSION = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,127}"), re.compile(r"[0-9]{1,18}")  # as in a bundle's manifest


@dataclass(frozen=True)
class Entry:
    """One bundle that is there to be served, or the reason why it cannot be read."""

    name: str
    version: str
    path: Path
    fingerprint: Fingerprint
    """Name, size, time and inode of each file; another one means another bundle."""
    pinned: bool = False
    """Named on the command line: served whatever newer versions there are."""
    fault: GaussportError | None = None

    def open(self) -> Bundle:
        if self.fault is not None:
            raise self.fault
        return open_bundle(self.path, check_hashes=False)


@dataclass
class Repository:
    """The places to look in. `scan` may be called from any thread, by one at a time."""

    paths: Sequence[Path]
    _known: dict[Path, Entry] = field(default_factory=dict)
    _models_dirs: set[Path] = field(default_factory=set)

    def scan(self) -> list[Entry]:
        """Every bundle found, models in the order of the paths and of their names, newest version first.
        UsageError when two bundles claim one name and version, or a path holds no model at all."""
        found: dict[tuple[str, str], Entry] = {}
        for path in self.paths:
            if path not in self._models_dirs and _holds_versions(path):
                self._models_dirs.add(path)  # and stays one when its last model goes
            entries = list(_in_models_dir(path)) if path in self._models_dirs else [self._named(path)]
            for entry in entries:
                other = found.get((entry.name, entry.version))
                if other is not None:
                    raise UsageError(
                        f"{entry.path} is a second model named {entry.name}, version {entry.version}, beside {other.path}: "
                        "export one of them with another name"
                    )
                found[entry.name, entry.version] = entry
        order = {name: place for place, name in enumerate(dict.fromkeys(name for name, _ in found))}
        return sorted(found.values(), key=lambda entry: (order[entry.name], -int(entry.version)))

    def has(self, name: str) -> bool:
        """Whether a models directory still has a folder for this model, be it empty."""
        return any((path / name).is_dir() for path in self._models_dirs)

    def _named(self, path: Path) -> Entry:
        fingerprint = fingerprint_of(path)
        known = self._known.get(path)
        if known is None or known.fingerprint != fingerprint or known.fault is not None:
            try:
                manifest = open_bundle(path, check_hashes=False).manifest
                known = Entry(manifest.name, manifest.version, path, fingerprint, pinned=True)
            except GaussportError as fault:
                name, version = (known.name, known.version) if known else (path.stem or "unnamed", "0")
                known = Entry(name, version, path, fingerprint, pinned=True, fault=fault)
            self._known[path] = known
        return known


def fingerprint_of(path: Path) -> Fingerprint:
    """What tells a bundle from the one that was there before, without reading it."""
    files = [path, *sorted(islice(path.rglob("*"), _MOST_FILES))] if path.is_dir() else [path]
    return tuple(_stat(file, path) for file in files if not file.is_dir())


def _stat(file: Path, root: Path) -> tuple[str, int, int, int]:
    try:
        facts = file.stat()
    except OSError:  # gone between being listed and being looked at
        return (str(file.relative_to(root)), -1, 0, 0)
    return (str(file.relative_to(root)), facts.st_size, facts.st_mtime_ns, facts.st_ino)


def _holds_versions(path: Path) -> bool:
    """A folder that is no bundle itself and whose subfolders have versions."""
    return path.is_dir() and not (path / MANIFEST_FILE).exists() and any(_versions(folder) for folder in _models(path))


def _models(path: Path) -> list[Path]:
    return sorted(folder for folder in path.iterdir() if _NAME.fullmatch(folder.name) and folder.is_dir())


def _versions(folder: Path) -> list[Path]:
    return [entry for entry in folder.iterdir() if _VERSION.fullmatch(entry.name)]


def _in_models_dir(path: Path) -> Iterator[Entry]:
    for folder in _models(path):
        for version in _versions(folder):
            fingerprint = fingerprint_of(version)
            try:
                yield Entry(folder.name, version.name, _bundle_in(version), fingerprint)
            except GaussportError as fault:
                yield Entry(folder.name, version.name, version, fingerprint, fault=fault)


def _bundle_in(version: Path) -> Path:
    if not version.is_dir() or (version / MANIFEST_FILE).exists():
        return version
    inside = [entry for entry in version.iterdir() if (entry / MANIFEST_FILE).exists() or entry.suffix == ".zip"]
    if len(inside) != 1:
        raise BundleError(f"{version} holds {len(inside)} bundles and should hold one: put the bundle's files there")
    return inside[0]
