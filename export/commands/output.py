"""What commands print on stdout: lines for people, JSON for machines, and paths that may not be text."""

import json
import sys
from pathlib import Path

from rich.console import Console


def say(line: str) -> None:
    """One line in rich's markup, never wrapped, plain when stdout is no terminal."""
    Console(soft_wrap=True, highlight=False, emoji=False).print(line)


def write_json(document: object) -> None:
    """One JSON document."""
    sys.stdout.write(json.dumps(document, indent=2, allow_nan=False) + "\n")


def shown(path: Path) -> str:
    """A path as text; bytes in it that are no text are replaced."""
    return str(path).encode(errors="replace").decode()
