"""`gaussport serve --engine ray`: deploy, say so in one line, wait for SIGTERM, drain every replica, take it down.

The bundles are loaded once as a task of the cluster before anything is deployed, so that what cannot be served is told in
one sentence by a machine like those that will serve, instead of by replicas that start over and over.
"""

import asyncio
import logging
import os
import signal
import sys
import threading
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from gaussport.errors import GaussportError, ServingError, UsageError
from gaussport.serving.app import build_app
from gaussport.serving.cluster.application import DEPLOYMENT, NAME, check, document
from gaussport.serving.cluster.connection import check_room, cluster
from gaussport.serving.cluster.endpoint import within_its_share
from gaussport.serving.cluster.quiet_ray import ray
from gaussport.serving.listening import address_of, check_tls, listen
from gaussport.serving.settings import Settings

QUIET = {"logging_config": {"log_level": "CRITICAL", "enable_access_log": False}}
"""Of Ray's controller and proxies: they write to our standard error, and a replica's fault is our one sentence there."""
_LOOK_S = 0.1
_GRACE_S = 15.0
"""Beyond the drain, for Ray to reach every replica and hear back."""


def serve_on_ray(paths: Sequence[Path], settings: Settings, announce: Callable[[str], None]) -> int:
    """Serve until told to stop. Bundles must lie at these paths on every machine of the cluster.

    Raises:
        UsageError, ServingError, BundleError: it cannot be served; nothing is deployed then.
    """
    check(settings)
    check_tls(settings.tls_cert, settings.tls_key)
    _hand_on_keys(settings)
    with listen(settings.host, settings.port) as listener:  # Ray would try a port in use again and again
        address = address_of(settings.host, listener, settings.tls_cert is not None)
        port = listener.getsockname()[1]
    paths = [path.absolute() for path in paths]
    stop = threading.Event()
    with cluster(settings):
        _on_signals(lambda: sys.exit(0))
        names = rehearse(paths, settings)
        try:
            deploy(document(paths, settings, port) | QUIET)
            _on_signals(stop.set)
            replicas = f"{settings.replicas} replica{'s' if settings.replicas > 1 else ''}"
            announce(f"gaussport serving {', '.join(names)} ({settings.provider}, {replicas} on Ray) on {address}")
            stop.wait()
            deploy(
                document(paths, settings, port, {"stopping": True}) | QUIET,
                settings.drain_delay_s + settings.drain_timeout_s + _GRACE_S,
            )
        finally:
            take_down()
    return 0


def _on_signals(act: Callable[[], object]) -> None:
    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, lambda *_: act())


def _hand_on_keys(settings: Settings) -> None:
    """Replicas read keys from their environment, which is ours on this machine: the deployed document is shown to many."""
    if settings.api_keys and settings.ray_address:
        raise UsageError("API keys cannot be handed to other machines: put them in a file there and use --api-keys-file")
    if settings.api_keys:
        os.environ["GAUSSPORT_API_KEYS"] = ",".join(settings.api_keys)


def rehearse(paths: Sequence[Path], settings: Settings) -> list[str]:
    """Load the bundles on the cluster and let them go. Returns the models' names."""
    check_room(settings)
    task = ray.remote(_load).options(num_cpus=settings.replica_cpus, num_gpus=settings.replica_gpus, max_retries=1)
    try:
        names: list[str] = ray.get(task.remote([str(path) for path in paths], within_its_share(settings)))
    except ray.exceptions.RayTaskError as error:
        if isinstance(error.cause, GaussportError):
            raise error.cause from None
        raise
    return names


def _load(paths: Sequence[str], settings: Settings) -> list[str]:
    async def load() -> list[str]:
        models = build_app([Path(path) for path in paths], settings).state.models
        await models.load_all()
        names: list[str] = models.names
        await models.close()
        return names

    return asyncio.run(load())


def deploy(document: dict[str, Any], patience_s: float | None = None) -> None:
    """Bring Ray Serve to what the document says, and wait until it is so.

    Raises:
        ServingError: another application is there, which Ray would remove; or the replicas do not start.
    """
    from ray import serve
    from ray.serve.context import _get_global_client  # `serve deploy` goes through the dashboard, which need not be there
    from ray.serve.schema import ServeDeploySchema

    logging.getLogger("ray.serve").setLevel(logging.WARNING)
    serve.start(
        proxy_location=document["proxy_location"],
        http_options=document["http_options"],
        logging_config=document["logging_config"],
    )
    others = set(serve.status().applications) - {NAME}
    if others:
        raise ServingError(
            f"the cluster serves {', '.join(sorted(others))} already: add this application to that configuration file "
            "(--print-ray-config) and use serve deploy"
        )
    client = _get_global_client()
    assert client is not None
    client.deploy_apps(ServeDeploySchema(**document))
    began = time.monotonic()
    while patience_s is None or time.monotonic() - began < patience_s:
        status = serve.status().applications.get(NAME)
        if status is not None and status.status in ("DEPLOY_FAILED", "UNHEALTHY"):
            told = [status.message, *(each.message for each in status.deployments.values())]
            raise ServingError(f"the replicas do not start: {_last_line(told)}")
        if status is not None and status.status == "RUNNING" and status.deployments[DEPLOYMENT].status == "HEALTHY":
            return
        time.sleep(_LOOK_S)


def take_down() -> None:
    """End what is deployed, and its proxies."""
    from ray import serve

    serve.shutdown()  # type: ignore[no-untyped-call]


def _last_line(messages: Sequence[str]) -> str:
    lines = [line.strip() for message in messages for line in message.splitlines() if line.strip()]
    return lines[-1] if lines else "Ray does not say why; its logs are in /tmp/ray/session_latest/logs/serve"
