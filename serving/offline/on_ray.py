"""The missing parts of a job on a Ray cluster, as a Ray Data pipeline of classifiers that take one part at a time.

The data are the parts' descriptions; pictures are read and answers written by the classifiers themselves, so the folders
must lie at the same paths on every machine. A classifier whose machine goes is replaced and its part is done again: as a
part's file appears whole under the part's own name, doing it twice is doing it once.
"""

import logging
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from gaussport.errors import GaussportError, ServingError
from gaussport.export.bundle.store import open_bundle
from gaussport.serving.cluster.connection import check_room, cluster
from gaussport.serving.cluster.endpoint import within_its_share
from gaussport.serving.cluster.quiet_ray import ray
from gaussport.serving.logs import silence_pillow
from gaussport.serving.offline.batches import Classifier
from gaussport.serving.offline.formats import Count, written
from gaussport.serving.offline.inputs import Part
from gaussport.serving.offline.job import Job
from gaussport.serving.settings import Settings


class PartWriter:
    """One classifier of the cluster, with a session of its own."""

    def __init__(self, bundle: str, settings: Settings, job: Job) -> None:
        silence_pillow()
        self._classifier = Classifier(
            open_bundle(Path(bundle), check_hashes=False), within_its_share(settings), job.asked.top_k
        )
        self._job = job

    def __call__(self, row: dict[str, Any]) -> dict[str, Any]:
        """Do a part unless it is done; what it held."""
        place = self._job.place(row["number"])
        items = Part.model_validate_json(row["part"]).items(self._job.asked.columns)
        found = written(place, self._classifier.rows(items), self._job.format)
        return {"pictures": found.pictures, "unusable": found.unusable}


def run_on_ray(job: Job, bundle: Path, settings: Settings) -> Iterator[Count]:
    """What each part held, as soon as it is on disk.

    Raises:
        ServingError: there is no such cluster, or it has too little room.
        GaussportError: what a classifier raised.
    """
    with cluster(settings):
        check_room(settings)
        missing = [{"number": number, "part": part.model_dump_json(exclude_defaults=True)} for number, part in job.missing()]
        if not missing:
            return
        _quiet()
        most = settings.max_replicas or settings.replicas
        parts = ray.data.from_items(missing, override_num_blocks=len(missing))
        answers = parts.map(
            PartWriter,  # type: ignore[arg-type]
            fn_constructor_args=(str(bundle.absolute()), settings, job),
            compute=ray.data.ActorPoolStrategy(min_size=settings.replicas, max_size=most),
            num_cpus=settings.replica_cpus,
            num_gpus=settings.replica_gpus,
        )
        try:
            for row in answers.iter_rows():
                yield Count(row["pictures"], row["unusable"])
        except ray.exceptions.RayError as error:
            raise _ours(error) from error


def _quiet() -> None:
    """Ray Data's own bar and news; ours is the progress."""
    logging.getLogger("ray.data").setLevel(logging.ERROR)
    context = ray.data.DataContext.get_current()
    context.enable_progress_bars = False
    context.print_on_execution_start = False


def _ours(error: BaseException) -> GaussportError:
    """What a classifier raised, if it is one of our sentences."""
    cause: BaseException | None = error
    while cause is not None:
        if isinstance(cause, GaussportError):
            return cause
        cause = getattr(cause, "cause", None) or cause.__cause__
    return ServingError(f"the job failed on the cluster: {str(error).strip().splitlines()[-1]}")
