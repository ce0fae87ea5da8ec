"""The configuration file beside weights that bring none: `--config FILE`."""

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from gaussport.errors import ConfigurationError

_LIMIT_BYTES = 16_000_000


def read_sidecar(path: Path) -> Mapping[str, Any]:
    """`config`, and `labels` and `preprocessing` where given, from a JSON file that is either such an object or the
    configuration alone.

    Raises:
        ConfigurationError: the file cannot be read or is not a JSON object.
    """
    try:
        if path.stat().st_size > _LIMIT_BYTES:
            raise ConfigurationError(f"the configuration {path.name} is larger than {_LIMIT_BYTES:,} bytes: give its JSON")
        document = json.loads(path.read_text(encoding="utf-8"))
    except FileNotFoundError:
        raise ConfigurationError(f"there is no configuration file {path}: check the path after --config") from None
    except IsADirectoryError:
        raise ConfigurationError(f"{path} is a folder: give the configuration file after --config") from None
    except OSError as error:
        raise ConfigurationError(f"the configuration file {path} cannot be read: {error.strerror}") from None
    except (ValueError, RecursionError) as error:
        raise ConfigurationError(f"the configuration file {path.name} is not JSON: {error}") from None
    if not isinstance(document, dict):
        raise ConfigurationError(f"the configuration file {path.name} is not a JSON object")
    if "config" not in document:
        return {"config": document}
    if not isinstance(document["config"], dict):
        raise ConfigurationError(f"the `config` of {path.name} is not a JSON object")
    return document
