"""Where settings come from: a flag wins over the environment (`GAUSSPORT_MAX_BATCH` for `--max-batch`), which wins over
the file of `--config`, which wins over the default. Each value knows its source; secrets are never shown."""

import argparse
import difflib
import os
import tomllib
from collections.abc import Mapping
from dataclasses import Field, dataclass, field, fields
from pathlib import Path
from typing import Any

from gaussport.errors import UsageError
from gaussport.serving.settings import Settings

CONFIG_VARIABLE = "GAUSSPORT_CONFIG"
_MASK = "********"
_TRUE, _FALSE = ("true", "1", "yes", "on"), ("false", "0", "no", "off")


def add_flags(parser: argparse.ArgumentParser, *names: str) -> None:
    """Add the flags of these settings, or of all."""
    for knob in fields(Settings):
        if knob.metadata["secret"] or (names and knob.name not in names):
            continue
        shown = "" if knob.default in (None, (), False) else f" (default: {_text(knob.default)})"
        help = f"{knob.metadata['help']}{shown}"
        # Read as text: the environment's and the file's values take the same way, to the same sentence when they are wrong.
        if knob.metadata["kind"] is bool:
            parser.add_argument(_flag(knob), nargs="?", const="true", metavar="true|false", help=help)
        else:
            parser.add_argument(_flag(knob), metavar=_metavar(knob), help=help)


@dataclass(frozen=True)
class Sourced:
    """Settings, and for each that is not the default the flag, variable or file that gave it."""

    settings: Settings
    sources: Mapping[str, str] = field(default_factory=dict)

    def text(self) -> str:
        """The settings as a TOML file that `--config` takes, each line with its source. Secrets are masked."""
        lines = []
        for knob in fields(Settings):
            value, source = getattr(self.settings, knob.name), self.sources.get(knob.name, "default")
            if knob.metadata["secret"]:
                lines.append(f"# {knob.name} = {_MASK if value else 'none'}  # {source}")
            elif value is None:
                lines.append(f"# {knob.name} =  # {source}: {knob.metadata['help']}")
            else:
                lines.append(f"{knob.name} = {_toml(value)}  # {source}")
        return "\n".join(lines) + "\n"


def from_arguments(arguments: argparse.Namespace, environment: Mapping[str, str] = os.environ) -> Settings:
    """Settings of a parsed command line, the environment and the file. UsageError when a value cannot be."""
    return read(arguments, environment).settings


def read(arguments: argparse.Namespace, environment: Mapping[str, str] = os.environ) -> Sourced:
    """As `from_arguments`, with the source of each value."""
    given_path = getattr(arguments, "config", None) or environment.get(CONFIG_VARIABLE)
    path = Path(given_path) if given_path else None
    filed = {} if path is None else _file(path)
    values: dict[str, Any] = {}
    sources: dict[str, str] = {}
    for knob in fields(Settings):
        variable = f"GAUSSPORT_{knob.name.upper()}"
        candidates = (
            (getattr(arguments, knob.name, None), _flag(knob)),
            (environment.get(variable), variable),
            (filed.get(knob.name), f"{knob.name} in {path}"),
        )
        text, source = next(((text, source) for text, source in candidates if text is not None), (None, ""))
        if text is not None:
            values[knob.name], sources[knob.name] = _parsed(text, source, knob), source
    return Sourced(_checked(Settings(**values)), sources)


def _checked(settings: Settings) -> Settings:
    if settings.tls_key is not None and settings.tls_cert is None:
        raise UsageError("--tls-key needs --tls-cert: give the certificate too")
    if settings.allow_load and settings.workers > 1:
        raise UsageError("--allow-load would change one worker only: use --workers 1, or a models directory with SIGHUP")
    return settings


def _file(path: Path) -> dict[str, str]:
    """The file's values as the texts that flags would have."""
    try:
        content = tomllib.loads(path.read_text("utf-8"))
    except OSError as error:
        raise UsageError(f"{path} cannot be read: {error.strerror}") from error
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
        raise UsageError(f"{path} is not TOML: {error}") from error
    return as_texts(content, str(path))


def as_texts(content: Mapping[str, Any], where: str) -> dict[str, str]:
    """Settings of a document as the texts that flags would have. UsageError for a key that is no setting."""
    names = [knob.name for knob in fields(Settings)]
    values = {}
    for key, value in content.items():
        name = key.replace("-", "_")
        if name not in names:
            near = difflib.get_close_matches(name, names, 1)
            raise UsageError(f"{where} sets {key}, which is no setting" + (f": did you mean {near[0]}?" if near else ""))
        if not isinstance(value, str | int | float | list) or (
            isinstance(value, list) and not all(isinstance(entry, str) for entry in value)
        ):
            raise UsageError(f"{key} in {where} must be a text, a number, true, false or a list of texts")
        values[name] = _text(value)
    return values


def _parsed(text: str, source: str, knob: "Field[Any]") -> Any:
    kind, choices, shown = knob.metadata["kind"], knob.metadata["choices"], "a secret" if knob.metadata["secret"] else text
    if kind is bool:
        if text.lower() not in (*_TRUE, *_FALSE):
            raise UsageError(f"{source} is {text!r}: give true or false")
        return text.lower() in _TRUE
    if kind is tuple:
        return tuple(entry.strip() for entry in text.split(",") if entry.strip())
    if choices and text not in choices:
        raise UsageError(f"{source} is {text!r}: give one of {', '.join(choices)}")
    if kind in (str, Path) and not text:
        raise UsageError(f"{source} is empty: give a value or leave it out")
    try:
        value = kind(text)
    except ValueError:
        if source == "GAUSSPORT_PORT" and text.startswith(("tcp://", "udp://")):
            raise UsageError(
                f"{source} is {text!r}, which Kubernetes sets for a Service called gaussport: say enableServiceLinks: false "
                "in the pod, or give the Service another name"
            ) from None
        raise UsageError(f"{source} is {shown!r}: give {'a whole number' if kind is int else 'a number'}") from None
    least, most = knob.metadata["least"], knob.metadata["most"]
    if least is not None and not least <= value:
        raise UsageError(f"{source} is {text}: give at least {least:g}")
    if least is not None and not value <= most:
        raise UsageError(f"{source} is {text}: give at most {most:g}")
    return value


def _flag(knob: "Field[Any]") -> str:
    return f"--{knob.name.replace('_', '-')}"


def _metavar(knob: "Field[Any]") -> str:
    names = {int: "INT", float: "FLOAT", Path: "FILE", tuple: "A,B,…", str: "STR"}
    return "|".join(knob.metadata["choices"]) or names[knob.metadata["kind"]]


def _text(value: Any) -> str:
    if isinstance(value, bool):
        return str(value).lower()
    return ",".join(value) if isinstance(value, list | tuple) else str(value)


def _toml(value: Any) -> str:
    if isinstance(value, tuple):
        return f"[{', '.join(_toml(entry) for entry in value)}]"
    if isinstance(value, str | Path):
        escaped = str(value).replace("\\", "\\\\").replace('"', '\\"')
        return f'"{escaped}"'
    return _text(value)
