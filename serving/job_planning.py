"""How long many pictures take, and on how many machines, from what a smaller job did (`gaussport classify -o … --json`)."""

import math
from pathlib import Path
from typing import Annotated

from pydantic import BaseModel, ConfigDict, Field, ValidationError

from gaussport.errors import DataError, UsageError

_Positive = Annotated[float, Field(gt=0, allow_inf_nan=False)]
_Count = Annotated[int, Field(ge=1)]


class Measured(BaseModel):
    """What one job did. Of a job that was taken up again only what it did itself."""

    model_config = ConfigDict(frozen=True)

    model: str
    cores: _Count
    classified: _Count
    seconds: _Positive

    @property
    def rate(self) -> float:
        """Pictures a second."""
        return self.classified / self.seconds


class JobPlan(BaseModel):
    """Machines like the measured one, each with a part of the pictures."""

    model_config = ConfigDict(frozen=True)

    model: str
    images: int
    machines: int
    cores: int
    rate: float
    """Pictures a second of each machine, as measured."""
    seconds: float
    """Of the whole job."""
    core_hours: float
    """Of work, headroom left out."""


def read_measured(path: Path) -> Measured:
    """Raises:
    DataError: the file is missing or is not what `gaussport classify -o DIR --json` says.
    """
    try:
        return Measured.model_validate_json(path.read_bytes())
    except OSError as error:
        raise DataError(f"{path} cannot be read: {error.strerror}") from error
    except ValidationError as error:
        first = error.errors(include_url=False, include_input=False)[0]
        where = ".".join(map(str, first["loc"])) or "the whole"
        raise DataError(
            f"{path} does not tell the rate of a job: {where}: {first['msg']}; keep what gaussport classify --json says"
        ) from error


def plan_job(measured: Measured, images: float, within_h: float | None = None, headroom: float = 0.3) -> JobPlan:
    """The least number of machines for a job and a time, or the time on one machine if none is given.

    Args:
        images: how many pictures.
        within_h: hours that the job may take.
        headroom: part of the measured rate that is not counted on: machines that are lost, storage that is slower.

    Raises:
        UsageError: a wish cannot be.
    """
    if not (math.isfinite(images) and images >= 1 and images == int(images)):
        raise UsageError(f"{images:g} pictures cannot be: give a whole number, as 1000000 or 1e6")
    if within_h is not None and not (math.isfinite(within_h) and within_h > 0):
        raise UsageError(f"the job is to take {within_h:g} hours: give a number above 0")
    if not 0 <= headroom < 1:
        raise UsageError(f"the headroom is {headroom}: give a number from 0 to below 1")
    rate = measured.rate * (1 - headroom)
    machines = 1 if within_h is None else math.ceil(images / (rate * within_h * 3600))
    return JobPlan(
        model=measured.model,
        images=int(images),
        machines=machines,
        cores=measured.cores,
        rate=measured.rate,
        seconds=images / (rate * machines),
        core_hours=images / measured.rate * measured.cores / 3600,
    )
