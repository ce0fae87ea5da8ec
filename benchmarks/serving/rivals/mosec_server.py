"""mosec: an HTTP front in Rust, decoding and inference each in a process of its own."""

import os
import sys

sys.argv[1:] = ["--port", os.environ["PORT"], "--address", "127.0.0.1", "--log-level", "error"]

from typing import Any  # noqa: E402 - mosec reads the arguments

import mosec  # noqa: E402
import numpy as np  # noqa: E402
import work  # noqa: E402


class Raw(mosec.Worker):
    """Bodies as they are, in and out."""

    def deserialize(self, data: bytes) -> Any:
        return data

    def serialize(self, data: Any) -> bytes:
        return data if isinstance(data, bytes) else bytes(data)


class Tensors(Raw):
    """Tensors need no stage before the batch."""

    def __init__(self) -> None:
        self.model = work.Model()

    def forward(self, data: list[Any]) -> list[Any]:
        return [logits.tobytes() for logits in self.model.run(np.stack([work.row_of_tensor(body) for body in data]))]


class Decode(Raw):
    def forward(self, data: Any) -> Any:
        return work.row_of_jpeg(data)


class Classify(Raw):
    def __init__(self) -> None:
        self.model = work.Model()

    def forward(self, data: list[Any]) -> list[Any]:
        return [work.json_of(logits) for logits in self.model.run(np.stack(data))]


if __name__ == "__main__":
    server = mosec.Server()
    batches = {"num": 1, "max_batch_size": work.MAX_BATCH, "max_wait_time": int(1000 * work.MAX_DELAY_S)}
    server.register_runtime(
        {
            "/tensor": [mosec.Runtime(Tensors, **batches)],
            "/jpeg": [mosec.Runtime(Decode, num=1), mosec.Runtime(Classify, **batches)],
        }
    )
    server.run()
