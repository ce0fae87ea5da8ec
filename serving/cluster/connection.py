"""The Ray cluster that work is sent to: the one that is named, or one of this machine alone."""

import logging
import time
from collections.abc import Iterator
from contextlib import contextmanager

from gaussport.errors import ServingError
from gaussport.serving.cluster.quiet_ray import ray
from gaussport.serving.cores import usable_cores
from gaussport.serving.settings import Settings

_WORDS = {"CPU": "cores", "GPU": "GPUs"}
_ROOM_S = 10.0
"""What another application has just let go is free after a moment."""


@contextmanager
def cluster(settings: Settings) -> Iterator[None]:
    """A connection for the time of the block; a cluster of this machine alone ends with it.

    Raises:
        ServingError: there is no cluster at the address, or none can be started.
    """
    address = settings.ray_address
    try:
        if address:
            ray.init(address, logging_level=logging.CRITICAL)
        else:
            ray.init("local", logging_level=logging.CRITICAL, num_cpus=usable_cores(), include_dashboard=False)
    except Exception as error:  # a machine too busy to start Ray within its 15 s raises just that
        reason = str(error).strip().partition("\n")[0]
        raise ServingError(f"the Ray cluster {address or 'of this machine'} is not to be had: {reason}") from error
    try:
        yield
    finally:
        ray.shutdown()


def check_room(settings: Settings) -> None:
    """ServingError when the cluster has not the free cores and GPUs for what is asked: Ray would wait without a word."""
    needed = {"CPU": settings.replica_cpus * settings.replicas, "GPU": settings.replica_gpus * settings.replicas}
    began = time.monotonic()
    while lacking := [name for name, amount in needed.items() if amount > _free(name)]:
        name = lacking[0]
        there: float = ray.cluster_resources().get(name, 0)  # type: ignore[no-untyped-call]
        if needed[name] > there or time.monotonic() - began > _ROOM_S:
            raise ServingError(
                f"{settings.replicas} replicas want {needed[name]:g} {_WORDS[name]} and the cluster has {there:g}, "
                f"{_free(name):g} of them free: give fewer --replicas, less --replica-{name.lower()}s, or more machines"
            )
        time.sleep(0.1)


def _free(name: str) -> float:
    free: dict[str, float] = ray.available_resources()  # type: ignore[no-untyped-call]
    return free.get(name, 0)
