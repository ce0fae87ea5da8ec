"""How many replicas a load needs, from what one replica was measured to give (`benchmarks/capacity.py`).

Nothing is modelled: of the measured steps the one that answers most while it keeps the promised time is taken, and a part
of it is left free for what the measurement did not see.
"""

import math
from pathlib import Path
from typing import Annotated

from pydantic import BaseModel, ConfigDict, Field, ValidationError

from gaussport.errors import DataError, ServingError, UsageError

_Positive = Annotated[float, Field(gt=0, allow_inf_nan=False)]
_Count = Annotated[int, Field(ge=1)]


class Step(BaseModel):
    """One load: `clients` that each wait for their answer before they ask again."""

    model_config = ConfigDict(frozen=True)

    clients: _Count
    rps: _Positive
    """Requests answered a second."""
    p99_ms: _Positive
    """99 of 100 were answered within this."""


class Measured(BaseModel):
    """What one replica gave, step by step."""

    model_config = ConfigDict(frozen=True)

    model: str
    cores: _Count
    steps: Annotated[tuple[Step, ...], Field(min_length=1)]


class Plan(BaseModel):
    """The answer: `replicas` of `cores` each, of which `spare` may be lost without breaking the promise."""

    model_config = ConfigDict(frozen=True)

    model: str
    replicas: int
    spare: int
    cores: int
    step: Step
    rps_each: float
    """What each replica answers when all are there."""
    queue_target: int
    """Images waiting in each replica at which an autoscaler is to add one."""


def read_measured(path: Path) -> Measured:
    """Raises:
    DataError: the file is missing or is not what `benchmarks/capacity.py` writes.
    """
    try:
        return Measured.model_validate_json(path.read_bytes())
    except OSError as error:
        raise DataError(f"{path} cannot be read: {error.strerror}") from error
    except ValidationError as error:
        first = error.errors(include_url=False, include_input=False)[0]
        where = ".".join(map(str, first["loc"])) or "the whole"
        raise DataError(f"{path} is no measurement of benchmarks/capacity.py: {where}: {first['msg']}") from error


def plan(measured: Measured, target_rps: float, p99_ms: float, headroom: float = 0.3, spare: int = 1) -> Plan:
    """The least number of replicas for a load and a promise.

    Args:
        target_rps: requests a second, at the worst moment.
        p99_ms: 99 of 100 are to be answered within this.
        headroom: part of a replica's measured rate that is left free, 0 to below 1.
        spare: replicas beyond those.

    Raises:
        UsageError: a wish cannot be.
        ServingError: no measured step keeps the promise; more replicas would not mend that.
    """
    if not (math.isfinite(target_rps) and target_rps > 0):
        raise UsageError(f"the load is {target_rps} requests a second: give a number above 0")
    if not (math.isfinite(p99_ms) and p99_ms > 0):
        raise UsageError(f"the promised time is {p99_ms} ms: give a number above 0")
    if not 0 <= headroom < 1:
        raise UsageError(f"the headroom is {headroom}: give a number from 0 to below 1")
    if spare < 0:
        raise UsageError(f"{spare} spare replicas cannot be: give 0 or more")
    keeping = [step for step in measured.steps if step.p99_ms <= p99_ms]
    if not keeping:
        best = min(measured.steps, key=lambda step: step.p99_ms)
        raise ServingError(
            f"no measured load of {measured.model} answers 99 % within {p99_ms:g} ms, the quickest took {best.p99_ms:g} ms "
            f"with {best.clients} clients: promise more, or measure with more cores, a GPU or a smaller --max-delay-ms"
        )
    step = max(keeping, key=lambda step: step.rps)
    needed = math.ceil(target_rps / (step.rps * (1 - headroom)))
    replicas = needed + spare
    return Plan(
        model=measured.model,
        replicas=replicas,
        spare=spare,
        cores=measured.cores,
        step=step,
        rps_each=target_rps / replicas,
        queue_target=max(1, step.clients // 2),
    )
