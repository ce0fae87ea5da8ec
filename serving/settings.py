"""Every knob of the server, its default, its flag and its environment variable, in one table.

A flag wins over the environment (`GAUSSPORT_MAX_BATCH` for `--max-batch`), which wins over the default.
"""

import argparse
import os
import sys
from collections.abc import Mapping
from dataclasses import dataclass, field, fields
from typing import Any

from gaussport.errors import UsageError


def _knob(default: Any, help: str, kind: type, least: float | None = None, most: float = sys.float_info.max) -> Any:
    return field(default=default, metadata={"help": help, "kind": kind, "least": least, "most": most})


@dataclass(frozen=True)
class Settings:
    """What the operator decides; everything else is decided by the bundle."""

    host: str = _knob("127.0.0.1", "address to listen on", str)
    port: int = _knob(8000, "port to listen on; 0 takes a free one", int, 0, 65535)
    provider: str = _knob("cpu", "execution provider: cpu, cuda, tensorrt or tensorrt-rtx", str)
    threads: int | None = _knob(None, "threads of one inference (default: cores this process may use)", int, 1)
    decode_threads: int | None = _knob(None, "threads that decode pictures (default: cores this process may use)", int, 1)
    max_batch: int | None = _knob(None, "largest batch in images (default: the largest that the bundle's proof ran)", int, 1)
    max_delay_ms: float = _knob(2.0, "how long a batch stays open for more images", float, 0)
    queue_size: int = _knob(256, "images that may wait, being decoded or queued; beyond it requests get 429", int, 1)
    max_images: int = _knob(64, "pictures in one request", int, 1)
    timeout_ms: float = _knob(30_000.0, "time a request may take when it names no timeout of its own", float, 1)
    max_body_mb: float = _knob(32.0, "largest request body, after decompression", float, 0.000_001)
    body_timeout_s: float = _knob(30.0, "time that a client has to send its request", float, 0.01)
    keep_alive_s: int = _knob(75, "time that an idle connection stays open", int, 1)
    drain_timeout_s: float = _knob(20.0, "time that requests in flight have to end after SIGTERM", float, 0.1)
    drain_delay_s: float = _knob(0.2, "time between falling readiness and the closed port, for load balancers", float, 0)
    max_pixels: int = _knob(50_000_000, "largest picture, width times height", int, 1)
    max_side_ratio: float = _knob(50.0, "longest side of a picture over its shortest", float, 1)

    @property
    def max_body_bytes(self) -> int:
        return int(self.max_body_mb * 1_000_000)


def add_flags(parser: argparse.ArgumentParser, *names: str) -> None:
    """Add the flags of these settings, or of all."""
    for knob in fields(Settings):
        if names and knob.name not in names:
            continue
        shown = "" if knob.default is None else f" (default: {knob.default})"
        flag = f"--{knob.name.replace('_', '-')}"
        # Read as text: the environment's values take the same way, with the same sentence when they are wrong.
        parser.add_argument(flag, metavar=knob.metadata["kind"].__name__.upper(), help=knob.metadata["help"] + shown)


def from_arguments(arguments: argparse.Namespace, environment: Mapping[str, str] = os.environ) -> Settings:
    """Settings of a parsed command line and the environment. UsageError when a value cannot be."""
    values: dict[str, Any] = {}
    for knob in fields(Settings):
        variable = f"GAUSSPORT_{knob.name.upper()}"
        flag = f"--{knob.name.replace('_', '-')}"
        given = getattr(arguments, knob.name, None)
        source = flag
        if given is None:
            given, source = environment.get(variable), variable
        if given is not None:
            values[knob.name] = _parsed(given, source, **{key: knob.metadata[key] for key in ("kind", "least", "most")})
    return Settings(**values)


def _parsed(text: str, source: str, kind: type, least: float | None, most: float) -> Any:
    try:
        value = kind(text)
    except ValueError:
        wanted = "a whole number" if kind is int else "a number"
        raise UsageError(f"{source} is {text!r}: give {wanted}") from None
    if least is not None and not least <= value:
        raise UsageError(f"{source} is {text}: give at least {least:g}")
    if least is not None and not value <= most:
        raise UsageError(f"{source} is {text}: give at most {most:g}")
    return value
