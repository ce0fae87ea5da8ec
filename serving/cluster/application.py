"""The application of Ray Serve: how many replicas of `Endpoint`, with how much of the cluster, and for what.

`document` is what `serve deploy` and `gaussport serve --engine ray` give Ray; it names `build`, which Ray calls. Scaling
stands under `deployments`, where a change of it replaces no replica; what a replica is told stands under `args`, where a
change rolls the replicas one by one.
"""

import argparse
from collections.abc import Mapping, Sequence
from dataclasses import fields
from pathlib import Path
from typing import Any

from pydantic import BaseModel, ConfigDict, Field

from gaussport.errors import UsageError
from gaussport.serving.cluster.endpoint import Endpoint
from gaussport.serving.setting_sources import as_texts, from_arguments
from gaussport.serving.settings import Settings

NAME, DEPLOYMENT = "gaussport", "Endpoint"
LOGGING = {"log_level": "WARNING", "enable_access_log": False}
"""Of Ray's own doings; what happens to requests stands in our log and metrics."""

_OF_THE_CLUSTER = (
    "engine",
    "ray_address",
    "replicas",
    "max_replicas",
    "target_requests",
    "host",
    "port",
    "tls_cert",
    "tls_key",
)
"""Settings that are not told to the replicas, which would be replaced when one changes."""

_BESIDE_THE_QUEUE = 64
"""Requests that a replica takes beyond its queue: probes, and those that it refuses itself, with its own `Retry-After`."""
_TRIES = 3


class Wish(BaseModel):
    """`args` of the configuration file."""

    model_config = ConfigDict(extra="forbid")

    bundles: list[Path] = Field(min_length=1)
    settings: dict[str, Any] = {}


def build(wish: Wish) -> Any:
    """The application of a configuration file, whose `deployments` say how many replicas there are and with what.

    Raises:
        UsageError: a setting cannot be.
    """
    from ray import serve

    settings = from_arguments(argparse.Namespace(**as_texts(wish.settings, "args.settings")))
    check(settings)
    deployment: Any = serve.deployment(serve.ingress()(Endpoint), name=DEPLOYMENT)
    return deployment.options(**options(settings)).bind([str(path) for path in wish.bundles], settings)


def check(settings: Settings) -> None:
    """UsageError for what replicas cannot heed: it would be thought to work."""
    if settings.workers > 1:
        raise UsageError("--workers are processes of one machine: with --engine ray use --replicas")
    if settings.allow_load:
        raise UsageError("--allow-load would change one replica only: with --engine ray use --poll-s, or deploy again")
    if settings.max_replicas is not None and settings.max_replicas < settings.replicas:
        raise UsageError(
            f"--max-replicas is {settings.max_replicas} and --replicas {settings.replicas}: give at least as many"
        )
    for flag, amount in (("--replica-cpus", settings.replica_cpus), ("--replica-gpus", settings.replica_gpus)):
        if amount > 1 and amount % 1:
            raise UsageError(f"{flag} is {amount:g}: give a part of one, or a whole number")
    if settings.provider != "cpu" and not settings.replica_gpus:
        raise UsageError(
            f"the provider is {settings.provider} and replicas reserve no GPU: give --replica-gpus 1, or a part"
        )


def options(settings: Settings) -> dict[str, Any]:
    """Options of the deployment, in the words of Ray's configuration file."""
    most = settings.max_replicas or settings.replicas
    scaling: dict[str, Any] = (
        {"num_replicas": settings.replicas}
        if most == settings.replicas
        else {
            "autoscaling_config": {
                "min_replicas": settings.replicas,
                "max_replicas": most,
                "target_ongoing_requests": settings.target_requests,
            }
        }
    )
    return scaling | {
        "max_ongoing_requests": settings.queue_size + _BESIDE_THE_QUEUE,
        "max_queued_requests": settings.queue_size,
        # One by one in the room of the one that goes; a single replica stays until the new one is there, which needs room.
        "max_surge_percent": 100 if settings.replicas == 1 else 0,
        "max_constructor_retry_count": _TRIES,
        "graceful_shutdown_wait_loop_s": settings.drain_delay_s,
        "graceful_shutdown_timeout_s": settings.drain_timeout_s,
        "logging_config": dict(LOGGING),  # a copy: YAML would write a reference
        "ray_actor_options": {"num_cpus": settings.replica_cpus, "num_gpus": settings.replica_gpus},
    }


def document(
    paths: Sequence[Path], settings: Settings, port: int, user_config: Mapping[str, Any] | None = None
) -> dict[str, Any]:
    """Ray's declarative configuration (its ServeDeploySchema). No secret is in it, and no setting that is the default."""
    told = {
        knob.name: _plain(getattr(settings, knob.name))
        for knob in fields(Settings)
        if getattr(settings, knob.name) != knob.default and not knob.metadata["secret"] and knob.name not in _OF_THE_CLUSTER
    }
    deployment = {"name": DEPLOYMENT, **options(settings)} | (
        {} if user_config is None else {"user_config": dict(user_config)}
    )
    return {
        "proxy_location": "EveryNode",
        "http_options": http_options(settings, port),
        "logging_config": LOGGING,
        "applications": [
            {
                "name": NAME,
                "route_prefix": "/",
                "import_path": f"{__name__}:build",
                "args": {"bundles": [str(path.absolute()) for path in paths], "settings": told},
                "deployments": [deployment],
            }
        ],
    }


def http_options(settings: Settings, port: int) -> dict[str, Any]:
    """Of the proxies, one on each machine; they speak TLS if we are to."""
    given = {"host": settings.host, "port": port, "keep_alive_timeout_s": settings.keep_alive_s}
    if settings.tls_cert is not None:
        given |= {"ssl_certfile": str(settings.tls_cert), "ssl_keyfile": str(settings.tls_key or settings.tls_cert)}
    return given


def _plain(value: Any) -> Any:
    """As JSON and YAML have it."""
    if isinstance(value, Path):
        return str(value)
    return list(value) if isinstance(value, tuple) else value
