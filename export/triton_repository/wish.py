"""What the caller wishes of a model repository, checked before anything is written."""

from dataclasses import dataclass

from gaussport.errors import UsageError
from gaussport.export.bundle.manifest import Manifest

BACKENDS = ("python", "onnxruntime", "tensorrt")
PROVIDERS = ("cpu", "cuda", "tensorrt", "tensorrt-rtx")


@dataclass(frozen=True)
class Wish:
    """`provider`, `threads` and `python_path` are for the Python backend; `engine` for it and for tensorrt."""

    backend: str = "python"
    provider: str = "cpu"
    max_batch: int | None = None
    max_delay_ms: float = 2.0
    instances: int = 1
    threads: int | None = None
    engine: str | None = None
    python_path: str | None = None

    @property
    def gpu(self) -> bool:
        return self.backend == "tensorrt" or self.provider != "cpu"

    def check(self, manifest: Manifest) -> None:
        """Raise a UsageError for what cannot be, or would be thought to work and does nothing."""
        if manifest.takes_text and self.backend == "python":
            raise UsageError(
                f"the Python backend prepares pictures, and {manifest.name} reads text: use --backend onnxruntime, and let "
                "clients send the tokens"
            )
        if self.backend != "python":
            for option, value in (("threads", self.threads), ("python-path", self.python_path)):
                if value is not None:
                    raise UsageError(f"--{option} is for the Python backend and the backend is {self.backend}: leave it out")
        if self.backend == "tensorrt" and self.provider != "cpu":
            raise UsageError(f"--provider {self.provider} is for the other backends: leave it out")
        if self.backend == "onnxruntime" and self.provider not in ("cpu", "cuda"):
            raise UsageError(
                f"Triton's ONNX Runtime backend does not load our plugins: use --backend python for {self.provider}"
            )
        if self.engine is not None and not (self.backend == "tensorrt" or self.provider.startswith("tensorrt")):
            raise UsageError("--tensorrt-engine names a TensorRT engine: use --provider tensorrt or --backend tensorrt")
        for name, number in (("max-batch", self.max_batch), ("instances", self.instances), ("threads", self.threads)):
            if number is not None and number < 1:
                raise UsageError(f"--{name} is {number}: give at least 1")
        if self.max_delay_ms < 0:
            raise UsageError(f"--max-delay-ms is {self.max_delay_ms}: give 0 or more")
        if self.max_batch is not None and self.max_batch > manifest.max_batch:
            raise UsageError(
                f"--max-batch {self.max_batch} is more than the {manifest.max_batch} that the bundle was proved with"
            )
