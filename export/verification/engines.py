"""The bundle's engines as further models to compare, each run as the server would run it or named with the reason why
this machine cannot run it."""

from dataclasses import dataclass

from gaussport.as_served import ServedEngine
from gaussport.errors import GaussportError
from gaussport.export.bundle.engines import ENGINES_FOLDER
from gaussport.export.bundle.store import Bundle
from gaussport.export.proof import Runs


@dataclass(frozen=True)
class Absent:
    """An engine that cannot be compared on this machine, and why."""

    name: str
    reason: str


def engines(bundle: Bundle) -> tuple[dict[str, Runs], tuple[Absent, ...]]:
    """The engines that run on this machine, and those that do not."""
    running: dict[str, Runs] = {}
    absent: list[Absent] = []
    for name in bundle.manifest.engines:
        try:
            running[f"{ENGINES_FOLDER}/{name}"] = ServedEngine(bundle, name)
        except GaussportError as error:
            absent.append(Absent(f"{ENGINES_FOLDER}/{name}", str(error)))
    return running, tuple(absent)
