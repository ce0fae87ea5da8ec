"""What one model has done since it was loaded: counts and nanoseconds, as the Open Inference Protocol reports them."""

import time
from dataclasses import dataclass, field


@dataclass
class Duration:
    """How often something was done and how long it took in all."""

    count: int = 0
    ns: int = 0

    def add(self, seconds: float, count: int = 1) -> None:
        self.count += count
        self.ns += int(seconds * 1e9)


@dataclass
class Statistics:
    """Changed on the event loop only. Of one process: workers each have their own; `/metrics` adds them up."""

    images: int = 0
    """Images in requests that were answered."""
    last_inference_ms: int = 0
    """Wall clock, milliseconds since 1970; 0 before the first."""
    success: Duration = field(default_factory=Duration)
    fail: Duration = field(default_factory=Duration)
    queue: Duration = field(default_factory=Duration)
    decode: Duration = field(default_factory=Duration)
    inference: Duration = field(default_factory=Duration)
    batches: dict[int, Duration] = field(default_factory=dict)
    """Runs of the model by the number of images in them."""

    @property
    def executions(self) -> int:
        return sum(batch.count for batch in self.batches.values())

    def batch(self, size: int, seconds: float) -> None:
        self.batches.setdefault(size, Duration()).add(seconds)
        self.last_inference_ms = int(time.time() * 1000)

    def answered(self, images: int, queue_s: float, inference_s: float, total_s: float) -> None:
        self.images += images
        self.queue.add(queue_s)
        self.inference.add(inference_s)
        self.success.add(total_s)
