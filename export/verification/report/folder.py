"""The report's files in a folder: each whole or as it was, and never inside the bundle that they are about."""

import json
import os
import secrets
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from gaussport.errors import UsageError
from gaussport.export.verification.report.markdown import markdown
from gaussport.export.verification.report.page import page

JSON_FILE, MARKDOWN_FILE, PAGE_FILE, SHEET_FILE = "verification.json", "verification.md", "verification.html", "changed.png"


def check_folder(folder: Path, bundle: Path) -> None:
    """Raise a UsageError unless reports about `bundle` can be written to `folder`; asked before the work."""
    target, home = Path(os.path.realpath(folder)), Path(os.path.realpath(bundle))
    if target == home or home in target.parents:
        raise UsageError(
            f"the report cannot lie in {folder}, inside the bundle, whose files are listed: choose another folder"
        )
    if target.exists() and not target.is_dir():
        raise UsageError(f"{folder} is no folder: choose another place for the report")
    if not target.exists() and not target.parent.is_dir():
        raise UsageError(f"{folder} cannot be made: the folder {folder.parent} does not exist, make it first")
    if not os.access(target if target.exists() else target.parent, os.W_OK | os.X_OK):
        raise UsageError(f"{folder} cannot be written: it, or the folder around it, is not writable")


def write_reports(folder: Path, document: Mapping[str, Any], sheet: bytes | None) -> list[Path]:
    """Write the three forms and the contact sheet. Raises OSError when the disk refuses."""
    folder.mkdir(exist_ok=True)
    files = {
        JSON_FILE: (json.dumps(document, indent=2, allow_nan=False) + "\n").encode(),
        MARKDOWN_FILE: markdown(document, SHEET_FILE if sheet else None).encode(),
        PAGE_FILE: page(document, sheet).encode(),
    }
    if sheet is not None:
        files[SHEET_FILE] = sheet
    else:
        (folder / SHEET_FILE).unlink(missing_ok=True)  # of an earlier report, about other pictures
    for name, data in files.items():
        draft = folder / f".{name}.{secrets.token_hex(6)}"
        try:
            draft.write_bytes(data)
            draft.replace(folder / name)
        finally:
            draft.unlink(missing_ok=True)
    return [folder / name for name in files]
