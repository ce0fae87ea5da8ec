"""The timing cache: what TensorRT measured before, so that the next build need not. A bad one costs time, never the build.

There is no lock: each build reads the file once and replaces it in one step when it is done.
"""

import secrets
from pathlib import Path
from typing import Any

from gaussport.export.engine.log import Messages

_LIMIT_BYTES = 1 << 30
_SUBJECT = "timing cache"


def attach_timing_cache(config: Any, path: Path | None, messages: Messages) -> str | None:
    """Give the builder the cache at `path`, or an empty one. Returns a warning when what is there cannot be used."""
    if path is None:
        return None
    warning, data = _read(path)
    errors, warnings = len(messages.errors), len(messages.warnings)
    cache = _created(config, data)
    accepted = cache is not None and _accepted(config, cache)
    complaints = [line for line in (*messages.errors[errors:], *messages.warnings[warnings:]) if _SUBJECT in line.lower()]
    if data and (complaints or not accepted):
        # TensorRT hands out an empty cache in the place of one that it cannot read, with no more than a message.
        reason = complaints[-1] if complaints else "it is of another version or device"
        warning = f"the timing cache {path} cannot be used and is written anew: {reason}"
        if not accepted and (empty := _created(config, b"")) is not None:
            _accepted(config, empty)
    del messages.errors[errors:]  # told in the warning, and no reason for anything that fails later
    return warning


def save_timing_cache(config: Any, path: Path | None) -> str | None:
    """Replace the file by what the builder knows now. Returns a warning when it cannot be written."""
    if path is None or (cache := config.get_timing_cache()) is None:
        return None
    aside = path.with_name(f".{path.name}.{secrets.token_hex(4)}")
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        aside.write_bytes(bytes(cache.serialize()))
        aside.replace(path)
    except OSError as error:
        aside.unlink(missing_ok=True)
        return f"the timing cache {path} cannot be written: {error.strerror}"
    return None


def _read(path: Path) -> tuple[str | None, bytes]:
    try:
        if not path.exists():
            return None, b""
        if path.stat().st_size > _LIMIT_BYTES:
            return f"the timing cache {path} is larger than {_LIMIT_BYTES >> 30} GiB and is left out", b""
        data = path.read_bytes()
    except OSError as error:
        return f"the timing cache {path} cannot be read: {error.strerror}", b""
    return (None if data else f"the timing cache {path} is empty and is written anew"), data


def _created(config: Any, data: bytes) -> Any:
    try:
        return config.create_timing_cache(data)
    except (RuntimeError, ValueError, TypeError):
        return None


def _accepted(config: Any, cache: Any) -> bool:
    try:
        return bool(config.set_timing_cache(cache, ignore_mismatch=False))
    except (RuntimeError, ValueError, TypeError):
        return False
