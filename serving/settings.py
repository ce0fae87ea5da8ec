"""Every knob of the server with its type, default and limits, in one table. `setting_sources` reads them."""

import sys
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any


def _knob(
    default: Any,
    help: str,
    kind: type,
    least: float | None = None,
    most: float = sys.float_info.max,
    choices: tuple[str, ...] = (),
    secret: bool = False,
) -> Any:
    """`kind` tuple is a list of texts, separated by commas. A `secret` has no flag: `ps` shows flags to everybody."""
    metadata = {"help": help, "kind": kind, "least": least, "most": most, "choices": choices, "secret": secret}
    return field(default=default, metadata=metadata)


_LEVELS = ("debug", "info", "warning", "error")


@dataclass(frozen=True)
class Settings:
    """What the operator decides; everything else is decided by the bundle."""

    host: str = _knob("127.0.0.1", "address to listen on", str)
    port: int = _knob(8000, "port to listen on; 0 takes a free one", int, 0, 65535)
    engine: str = _knob(
        "plain", "who runs it: plain, this process; ray, replicas on a Ray cluster", str, choices=("plain", "ray")
    )
    workers: int = _knob(1, "processes that share the port, each with every model", int, 1, 256)
    ray_address: str | None = _knob(None, "ray: the cluster, as auto or HOST:PORT (default: one of this machine alone)", str)
    replicas: int = _knob(1, "ray: replicas, each with every model", int, 1)
    max_replicas: int | None = _knob(
        None, "ray: most replicas, added as requests pile up (default: as many as --replicas)", int, 1
    )
    target_requests: float = _knob(16.0, "ray: requests in each replica above which another one is added", float, 0.1)
    replica_cpus: float = _knob(1.0, "ray: cores that a replica reserves", float, 0.1)
    replica_gpus: float = _knob(0.0, "ray: GPUs that a replica reserves, or the part of one", float, 0)
    provider: str = _knob("cpu", "execution provider: cpu, cuda, tensorrt, tensorrt-rtx, or auto for the best of them", str)
    device_id: int = _knob(0, "which GPU, of those that this process may see", int, 0)
    cuda_graph: bool = _knob(False, "record each batch size's launches and replay them: less CPU time on a GPU", bool)
    gpu_memory_mb: int | None = _knob(None, "most GPU memory that the cuda provider keeps for tensors", int, 1)
    tensorrt_engine: str | None = _knob(None, "which engine of the bundle, when several fit this GPU", str)
    threads: int | None = _knob(None, "threads of one inference (default: a share of the worker's cores)", int, 1)
    batches_at_once: int | None = _knob(
        None, "batches of a model that run side by side on a CPU (default: 1 with --threads, else to use its cores)", int, 1
    )
    decode_threads: int | None = _knob(None, "threads that decode pictures (default: usable cores over workers)", int, 1)
    versions: int = _knob(1, "newest versions of each model in a MODELS_DIR that are served; 0 serves all", int, 0)
    poll_s: float = _knob(0.0, "look for new and changed bundles this often; 0: only on SIGHUP", float, 0)
    allow_load: bool = _knob(False, "let clients load and unload models through /v2/repository", bool)
    strict_readiness: bool = _knob(False, "be ready only while every model can be served", bool)
    max_batch: int | None = _knob(None, "largest batch in images (default: the largest that the bundle's proof ran)", int, 1)
    max_delay_ms: float = _knob(2.0, "how long a batch stays open for more images", float, 0)
    queue_size: int = _knob(256, "images that may wait, being decoded or queued; beyond it requests get 429", int, 1)
    queue_mb: float = _knob(512.0, "bodies of all requests being received or answered; beyond it 429", float, 0.001)
    max_images: int = _knob(64, "pictures or texts in one request", int, 1)
    max_tokens: int = _knob(1 << 20, "largest text, in tokens", int, 1)
    max_streams: int = _knob(1024, "streams open at once; beyond it 429", int, 0)
    stream_mb: float = _knob(256.0, "memory of all open streams; beyond it 429", float, 0)
    stream_ttl_s: float = _knob(300.0, "a stream that has had nothing for so long ends", float, 0.01, 86_400)
    timeout_ms: float = _knob(30_000.0, "time a request may take when it names no timeout of its own", float, 1)
    max_body_mb: float = _knob(32.0, "largest request body, after decompression", float, 0.000_001)
    body_timeout_s: float = _knob(30.0, "time that a client has to send its request", float, 0.01)
    keep_alive_s: int = _knob(75, "time that an idle connection stays open", int, 1)
    drain_timeout_s: float = _knob(20.0, "time that requests in flight have to end after SIGTERM", float, 0.1)
    drain_delay_s: float = _knob(0.2, "time between falling readiness and the closed port, for load balancers", float, 0)
    max_pixels: int = _knob(50_000_000, "largest picture, width times height", int, 1)
    max_side_ratio: float = _knob(50.0, "longest side of a picture over its shortest", float, 1)
    still_only: bool = _knob(False, "refuse animated pictures, of which else the first frame is used", bool)
    api_keys: tuple[str, ...] = _knob((), "keys of which a client must send one", tuple, secret=True)
    api_keys_file: Path | None = _knob(None, "file of such keys, one a line; read again on SIGHUP", Path)  # noqa: RUF009
    tls_cert: Path | None = _knob(None, "certificate chain (PEM); makes the server speak HTTPS", Path)  # noqa: RUF009
    tls_key: Path | None = _knob(None, "private key (PEM), if it is not in the same file", Path)  # noqa: RUF009
    cors_origins: tuple[str, ...] = _knob((), "origins whose pages may call, as https://a.example; * for all", tuple)
    explain: bool = _knob(True, "answer /v1/explain, for models whose bundle has explain.onnx", bool)
    explain_queue: int = _knob(4, "explanations that may run or wait; beyond it requests get 429", int, 1)
    page: bool = _knob(True, "serve the page to drop a picture on at /", bool)
    docs: bool = _knob(True, "serve the interface's pages under /docs and /redoc", bool)
    log_format: str = _knob("text", "text for people, json for machines", str, choices=("text", "json"))
    log_level: str = _knob("warning", "info adds a line for each request", str, choices=_LEVELS)
    otel_endpoint: str | None = _knob(None, "collector of traces, as http://127.0.0.1:4318 (needs gaussport[otel])", str)

    @property
    def max_body_bytes(self) -> int:
        return int(self.max_body_mb * 1_000_000)

    @property
    def stream_bytes(self) -> int:
        return int(self.stream_mb * 1_000_000)

    @property
    def queue_bytes(self) -> int:
        return int(self.queue_mb * 1_000_000)
