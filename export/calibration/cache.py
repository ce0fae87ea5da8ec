"""Ranges that were measured before, kept per user. The name of an entry is the hash of everything they depend on."""

import contextlib
import hashlib
import json
import os
import secrets
from collections.abc import Mapping
from pathlib import Path


def key(*parts: str | bytes) -> str:
    """One hash for the parts; no two lists of parts share it by being joined."""
    found = hashlib.sha256()
    for part in parts:
        data = part.encode() if isinstance(part, str) else part
        found.update(hashlib.sha256(data).digest())
    return found.hexdigest()


def load(name: str) -> dict[str, float] | None:
    """The ranges under that name, or None: not there, or damaged."""
    try:
        content = json.loads((_folder() / f"{name}.json").read_text(encoding="utf-8"))
    except (OSError, ValueError):
        return None
    if not isinstance(content, dict) or not all(isinstance(v, float) and 0 <= v < float("inf") for v in content.values()):
        return None
    return content


def save(name: str, ranges: Mapping[str, float]) -> None:
    """Keep the ranges, in one step; a cache that cannot be written costs time next time and is no fault."""
    with contextlib.suppress(OSError):
        folder = _folder()
        folder.mkdir(parents=True, exist_ok=True)
        draft = folder / f".{name}.{secrets.token_hex(6)}"
        try:
            draft.write_text(json.dumps(dict(ranges)), encoding="utf-8")
            draft.replace(folder / f"{name}.json")
        finally:
            draft.unlink(missing_ok=True)


def _folder() -> Path:
    base = os.environ.get("XDG_CACHE_HOME") or ""
    return (Path(base) if Path(base).is_absolute() else Path.home() / ".cache") / "gaussport" / "calibration"
