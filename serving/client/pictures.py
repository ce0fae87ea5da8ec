"""Pictures as a caller gives them: files, or bytes that are already there."""

from pathlib import Path

from gaussport.errors import ImageError


def read_picture(path: Path) -> bytes:
    """The bytes of a file; ImageError `unreadable_file` in one sentence when it cannot be read."""
    try:
        return path.read_bytes()
    except OSError as error:
        raise ImageError(f"{path} cannot be read: {error.strerror}", "unreadable_file") from error
