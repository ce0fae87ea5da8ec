"""BentoML with its adaptive batching. Batches form of what its JSON holds, so that bodies are JSON with base64."""

import base64
from typing import Any

import bentoml
import numpy as np
import work


@bentoml.service(workers=1, traffic={"timeout": 60}, metrics={"enabled": False}, logging={"access": {"enabled": False}})
class Classifier:
    def __init__(self) -> None:
        self.model = work.Model()

    @bentoml.api(batchable=True, max_batch_size=work.MAX_BATCH, max_latency_ms=60_000)
    def tensor(self, bodies: list[str]) -> list[Any]:
        rows = [work.row_of_tensor(base64.b64decode(body)) for body in bodies]
        return [base64.b64encode(logits.tobytes()).decode() for logits in self.model.run(np.stack(rows))]

    @bentoml.api(batchable=True, max_batch_size=work.MAX_BATCH, max_latency_ms=60_000)
    def jpeg(self, bodies: list[str]) -> list[Any]:
        rows = [work.row_of_jpeg(base64.b64decode(body)) for body in bodies]
        return [work.best_of(logits) for logits in self.model.run(np.stack(rows))]
