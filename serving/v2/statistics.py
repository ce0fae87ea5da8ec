"""What `/stats` answers: the counts and nanoseconds of `serving.statistics` under Triton's names.

queue           from a decoded request to its first batch
compute_input   decoding and preprocessing of pictures; nothing for tensors
compute_infer   the model, with the gathering of its batch
compute_output  not measured, as the caches, of which there are none: 0 times, 0 ns
"""

from collections.abc import Iterable
from typing import Any

from gaussport.serving.served_model import ServedModel
from gaussport.serving.statistics import Duration

_NEVER = Duration()


def of(models: Iterable[ServedModel]) -> dict[str, Any]:
    return {"model_stats": [_model(served) for served in models]}


def _model(served: ServedModel) -> dict[str, Any]:
    seen = served.statistics
    durations = {
        "success": seen.success,
        "fail": seen.fail,
        "queue": seen.queue,
        "compute_input": seen.decode,
        "compute_infer": seen.inference,
        "compute_output": _NEVER,
        "cache_hit": _NEVER,
        "cache_miss": _NEVER,
    }
    return {
        "name": served.name,
        "version": served.version,
        "last_inference": seen.last_inference_ms,
        "inference_count": seen.images,
        "execution_count": seen.executions,
        "inference_stats": {name: _duration(duration) for name, duration in durations.items()},
        "batch_stats": [
            {
                "batch_size": size,
                "compute_input": _duration(_NEVER),
                "compute_infer": _duration(runs),
                "compute_output": _duration(_NEVER),
            }
            for size, runs in sorted(seen.batches.items())
        ],
    }


def _duration(duration: Duration) -> dict[str, int]:
    return {"count": duration.count, "ns": duration.ns}
