"""GPU architectures as people write them, and those that each builder can build for."""

import re
from collections.abc import Iterable

from gaussport.errors import UsageError

RTX_ARCHITECTURES = (75, 80, 86, 89, 120, 121)
"""What TensorRT-RTX 1.7 builds for without a GPU; it has no sm_90 and no sm_100, which are not RTX cards."""

_SPELLING = re.compile(r"(?:sm_?)?(\d{2,3})|(\d{1,2})\.(\d)", re.IGNORECASE)


def parse_architecture(text: str) -> int:
    """86 for `sm_86`, `SM86`, `86` and `8.6`.

    Raises:
        UsageError: it is none of these.
    """
    match = _SPELLING.fullmatch(text.strip())
    if match is None:
        raise UsageError(f"--arch {text!r} is no GPU architecture: write it as sm_86")
    return int(match[1] or match[2] + match[3])


def listed(architectures: Iterable[int]) -> str:
    return ", ".join(f"sm_{architecture}" for architecture in architectures)
