"""The Ray cluster that work is sent to: the one that is named, or one of this machine alone."""

import logging
from collections.abc import Iterator
from contextlib import contextmanager

from gaussport.errors import ServingError
from gaussport.serving.cluster.quiet_ray import ray
from gaussport.serving.cores import usable_cores
from gaussport.serving.settings import Settings


@contextmanager
def cluster(settings: Settings) -> Iterator[None]:
    """A connection for the time of the block; a cluster of this machine alone ends with it.

    Raises:
        ServingError: there is no cluster at the address, or none can be started.
    """
    address = settings.ray_address
    try:
        if address:
            ray.init(address, logging_level=logging.ERROR)
        else:
            ray.init("local", logging_level=logging.ERROR, num_cpus=usable_cores(), include_dashboard=False)
    except (ConnectionError, RuntimeError, ValueError) as error:
        reason = str(error).strip().partition("\n")[0]
        raise ServingError(f"the Ray cluster {address or 'of this machine'} is not to be had: {reason}") from error
    try:
        yield
    finally:
        ray.shutdown()


def check_room(settings: Settings) -> None:
    """ServingError when the cluster can never hold the classifiers or replicas that are asked for."""
    there: dict[str, float] = ray.cluster_resources()  # type: ignore[no-untyped-call]
    for what, each, name in (("cores", settings.replica_cpus, "CPU"), ("GPUs", settings.replica_gpus, "GPU")):
        if each * settings.replicas > there.get(name, 0):
            raise ServingError(
                f"{settings.replicas} replicas with {each:g} {what} each are asked for and the cluster has "
                f"{there.get(name, 0):g}: give fewer --replicas, less --replica-{name.lower()}s, or more machines"
            )
