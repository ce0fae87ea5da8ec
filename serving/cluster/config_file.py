"""The file that Ray's `serve deploy` takes, for these bundles and settings."""

from collections.abc import Sequence
from pathlib import Path

from gaussport.errors import UsageError
from gaussport.serving.cluster.application import check, document
from gaussport.serving.settings import Settings

_HEAD = """\
# For Ray's `serve deploy`. Written by: gaussport serve BUNDLE … --engine ray --print-ray-config
# The bundles must lie at these paths on every machine. API keys are read from GAUSSPORT_API_KEYS of Ray's processes, or from
# the file of api_keys_file.
"""


def config_file(paths: Sequence[Path], settings: Settings) -> str:
    """The file as YAML; only settings that are not the default are in it, and no secret.

    Raises:
        UsageError: a setting cannot be used on a cluster, or the port is left to chance.
    """
    import yaml

    from gaussport.serving.cluster.quiet_ray import ray  # noqa: F401 - which brings yaml

    check(settings)
    if not settings.port:
        raise UsageError("--port 0 would be another one on each machine: name one")
    text: str = yaml.safe_dump(document(paths, settings, settings.port), sort_keys=False, allow_unicode=True, width=125)
    return _HEAD + text
