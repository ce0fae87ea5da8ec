"""The report's files: each whole or as it was, never inside a bundle that they are about."""

import os
import secrets
from collections.abc import Iterable, Mapping
from pathlib import Path

from gaussport.errors import UsageError

FIGURES = tuple(f"{name}.png" for name in ("confusion", "reliability", "differences", "heads", "layers"))
PAGE_FILE, CARD_FILE = "report.html", "README.md"


def check_folder(folder: Path, bundles: Iterable[Path]) -> None:
    """Raise a UsageError unless reports can be written to `folder`; asked before the work."""
    target = Path(os.path.realpath(folder))
    for bundle in bundles:
        home = Path(os.path.realpath(bundle))
        if target == home or home in target.parents:
            raise UsageError(f"the report cannot lie in {folder}, inside the bundle {bundle}: choose another folder")
    if target.exists() and not target.is_dir():
        raise UsageError(f"{folder} is a file already: choose another folder for the report")
    if not target.exists() and not target.parent.is_dir():
        raise UsageError(f"{folder} cannot be made: the folder {folder.parent} does not exist, make it first")
    card = target / CARD_FILE
    if card.exists() and not (target / PAGE_FILE).exists():
        raise UsageError(f"{folder} has a {CARD_FILE} that is no report's: choose another folder")
    if not os.access(target if target.exists() else target.parent, os.W_OK | os.X_OK):
        raise UsageError(f"{folder} cannot be written: it, or the folder around it, is not writable")


def write_files(folder: Path, files: Mapping[str, bytes]) -> list[Path]:
    """Write them all, the page last. Raises a UsageError when the disk refuses."""
    try:
        folder.mkdir(exist_ok=True)
        for name in set(FIGURES) - set(files):
            (folder / name).unlink(missing_ok=True)  # of an earlier report
        for name, content in files.items():
            draft = folder / f".{name}.{secrets.token_hex(6)}"
            try:
                draft.write_bytes(content)
                draft.replace(folder / name)
            finally:
                draft.unlink(missing_ok=True)
    except OSError as error:
        raise UsageError(f"{folder} cannot be written: {error.strerror or error}") from error
    return [folder / name for name in files]
