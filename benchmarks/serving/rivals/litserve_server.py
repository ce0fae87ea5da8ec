"""LitServe, which takes JSON or forms: the body is JSON with the same bytes in base64."""

import base64
from typing import Any

import litserve
import numpy as np
import work


class Api(litserve.LitAPI):
    """Both kinds of body behind one route: LitServe has a process of inference for each route."""

    def setup(self, device: str) -> None:
        self.model = work.Model()

    def decode_request(self, request: dict[str, str]) -> tuple[str, Any]:
        kind, text = next(iter(request.items()))
        body = base64.b64decode(text)
        return kind, work.row_of_tensor(body) if kind == "tensor" else work.row_of_jpeg(body)

    def batch(self, inputs: list[tuple[str, Any]]) -> Any:
        return [kind for kind, _ in inputs], np.stack([row for _, row in inputs])

    def predict(self, batch: Any) -> Any:
        return batch[0], self.model.run(batch[1])

    def unbatch(self, output: Any) -> Any:
        return list(zip(*output, strict=True))

    def encode_response(self, output: Any) -> dict[str, Any]:
        kind, logits = output
        return {"logits": base64.b64encode(logits.tobytes()).decode()} if kind == "tensor" else work.best_of(logits)


if __name__ == "__main__":
    api = Api(max_batch_size=work.MAX_BATCH, batch_timeout=work.MAX_DELAY_S)
    server = litserve.LitServer(api, accelerator="cpu", workers_per_device=1, timeout=60)
    server.run(host="127.0.0.1", port=work.PORT, generate_client_file=False, log_level="error", num_api_servers=1)
