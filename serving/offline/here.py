"""The missing parts of a job, one after the other, in this process."""

from collections.abc import Iterator

from gaussport.export.bundle.store import Bundle
from gaussport.serving.offline.batches import Classifier
from gaussport.serving.offline.formats import Count, written
from gaussport.serving.offline.job import Job
from gaussport.serving.settings import Settings


def run_here(job: Job, bundle: Bundle, settings: Settings) -> Iterator[Count]:
    """What each part held, as soon as it is on disk."""
    classifier = Classifier(bundle, settings, job.asked.top_k)
    try:
        for number, part in job.missing():
            yield written(job.place(number), classifier.rows(part.items(job.asked.columns)), job.format)
    finally:
        classifier.close()
