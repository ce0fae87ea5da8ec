"""Ray, which tells nobody what is run: its usage statistics are off unless the operator's environment says otherwise.

A cluster that somebody else started decided that for itself, when it started.
"""

import os

from gaussport.errors import ServingError

os.environ.setdefault("RAY_USAGE_STATS_ENABLED", "0")
os.environ.setdefault(
    "RAY_ACCEL_ENV_VAR_OVERRIDE_ON_ZERO", "0"
)  # what Ray will do from its next version on, without its warning

try:
    import ray
except ImportError as error:
    raise ServingError(f"--engine ray needs Ray, which cannot be imported ({error}): install gaussport[ray]") from error

__all__ = ["ray"]
