"""What an operator may tell the execution provider, by one name for all of them, and each provider's own words for it."""

from dataclasses import dataclass
from typing import Self

from gaussport.errors import UsageError
from gaussport.serving.settings import Settings

GPU_PROVIDERS = ("cuda", "tensorrt", "tensorrt-rtx")


@dataclass(frozen=True)
class ProviderOptions:
    """Where and how a GPU provider runs; the CPU heeds none of them."""

    device_id: int = 0
    """Which GPU, as the driver numbers those that this process may see (CUDA_VISIBLE_DEVICES)."""
    cuda_graph: bool = False
    """Record the launches of each batch size once and replay them: less CPU time for small models."""
    gpu_memory_mb: int | None = None
    """Most memory, in MB, that the cuda provider keeps for tensors; an engine's need is fixed when it is built."""
    engine: str | None = None
    """Which engine of the bundle, by the name of its folder; needed only when several fit this machine."""

    @classmethod
    def of(cls, settings: Settings) -> Self:
        """Those among the server's settings."""
        return cls(settings.device_id, settings.cuda_graph, settings.gpu_memory_mb, settings.tensorrt_engine)

    def check(self, provider: str) -> None:
        """Raise a UsageError for an option that the provider cannot heed: it would be thought to work."""
        if self.gpu_memory_mb is not None and provider in ("tensorrt", "tensorrt-rtx"):
            raise UsageError(f"--gpu-memory-mb limits the cuda provider: the memory of a {provider} engine is fixed in it")
        if self.engine is not None and provider in ("cpu", "cuda"):
            raise UsageError(
                f"--tensorrt-engine names a TensorRT engine and the provider is {provider}: use --provider tensorrt"
            )
        if self.cuda_graph and provider == "cpu":
            raise UsageError("--cuda-graph needs a GPU and the provider is cpu: leave it out")

    def words(self, provider: str) -> dict[str, str]:
        """The options in the provider's own names, as ONNX Runtime documents them."""
        if provider == "cpu":
            return {}
        words = {"device_id": str(self.device_id)}
        if provider == "cuda":
            # float32 means float32, also in tensor cores; memory grows by what is asked for, not to powers of two.
            words |= {"use_tf32": "0", "arena_extend_strategy": "kSameAsRequested"}
            if self.gpu_memory_mb is not None:
                words["gpu_mem_limit"] = str(self.gpu_memory_mb * 1_000_000)
        if self.cuda_graph:
            names = {"cuda": "enable_cuda_graph", "tensorrt": "trt_cuda_graph_enable", "tensorrt-rtx": "enable_cuda_graph"}
            words[names[provider]] = "1"
        return words
