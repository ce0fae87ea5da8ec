"""Configuration files: the one after `--config`, and those that lie beside a checkpoint under the names that people use."""

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from gaussport.errors import ConfigurationError
from gaussport.models.checkpoint.folders import shown

_LIMIT_BYTES = 16_000_000
BESIDE = ("config.json", "config.yaml", "config.yml")
PREPROCESSOR = "preprocessor_config.json"


def read_sidecar(path: Path) -> Mapping[str, Any]:
    """The object in a JSON or YAML file: a configuration, or one under `config` with `labels` and `preprocessing` beside.

    Raises:
        ConfigurationError: the file cannot be read or is no such object.
    """
    name, yaml = shown(path.name), path.suffix in (".yaml", ".yml")
    try:
        if path.stat().st_size > _LIMIT_BYTES:
            raise ConfigurationError(f"the configuration {name} is larger than {_LIMIT_BYTES:,} bytes: give its JSON")
        text = path.read_text(encoding="utf-8-sig")
        document = _yaml(text, name) if yaml else json.loads(text)
    except FileNotFoundError:
        raise ConfigurationError(f"there is no configuration file {shown(path)}: check the path after --config") from None
    except IsADirectoryError:
        raise ConfigurationError(f"{shown(path)} is a folder: give the configuration file after --config") from None
    except OSError as error:
        raise ConfigurationError(f"the configuration file {shown(path)} cannot be read: {error.strerror}") from None
    except (ValueError, RecursionError) as error:
        raise ConfigurationError(f"the configuration file {name} is not {'YAML' if yaml else 'JSON'}: {error}") from None
    if not isinstance(document, dict) or not all(isinstance(key, str) for key in document):
        raise ConfigurationError(f"the configuration file {name} is not a {'mapping' if yaml else 'JSON object'}")
    if "config" in document and not isinstance(document["config"], dict):
        raise ConfigurationError(f"the `config` of {name} is not a JSON object")
    return document


def found_beside(checkpoint: Path) -> list[Path]:
    """The configuration files in the checkpoint's folder; of several configurations the first, by the order above."""
    folder = checkpoint if checkpoint.is_dir() else checkpoint.parent
    configurations = [folder / name for name in BESIDE if (folder / name).is_file()][:1]
    return [*configurations, *(path for path in (folder / PREPROCESSOR,) if path.is_file())]


def _yaml(text: str, name: str) -> Any:
    try:
        import yaml
    except ImportError:
        raise ConfigurationError(
            f"{name} is YAML, which needs PyYAML: pip install 'gaussport[export]', or write JSON"
        ) from None

    class Loader(yaml.SafeLoader):  # type: ignore[misc]  # the package ships no types
        """Without aliases, by which a few lines become billions of values."""

        def compose_node(self, parent: Any, index: Any) -> Any:
            if self.check_event(yaml.events.AliasEvent):
                raise ValueError("it has an alias, write the value in its place")
            return super().compose_node(parent, index)

    try:
        return yaml.load(text, Loader)
    except yaml.YAMLError as error:
        raise ValueError(" ".join(str(error).split())) from None
