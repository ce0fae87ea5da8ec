"""Every call of KServe's InferenceRESTClient against a server, in a Python that has kserve (its packages need 450 MB).

python kserve_client.py URL MODEL ROWS.npy      writes {"json": logits, "binary": logits, ...} to standard output
"""

import asyncio
import json
import sys

import httpx
import numpy as np
from kserve import InferenceRESTClient, InferInput, InferRequest, RESTConfig
from kserve.protocol.infer_type import RequestedOutput


async def main(url: str, model: str, path: str) -> None:
    rows = np.load(path)
    async with InferenceRESTClient(RESTConfig(protocol="v2", timeout=20)) as client:
        found = {
            "live": await client.is_server_live(url),
            "ready": await client.is_server_ready(url),
            "model_ready": await client.is_model_ready(url, model),
            "other_ready": await client.is_model_ready(url, "nobody"),
        }
        for name, binary in (("json", False), ("binary", True)):
            tensor = InferInput("pixels", list(rows.shape), "FP32")
            tensor.set_data_from_numpy(rows, binary_data=binary)
            outputs = [RequestedOutput("logits", {"binary_data": binary})]
            request = InferRequest(model, [tensor], request_id="mine", request_outputs=outputs)
            response = await client.infer(url, request, model_name=model)
            found[name] = response.outputs[0].as_numpy().tolist()
            found[f"{name}_id"] = response.id
        plain = {"inputs": [{"name": "pixels", "shape": list(rows.shape), "datatype": "FP32", "data": rows.tolist()}]}
        found["dict"] = (await client.infer(url, plain, model_name=model)).outputs[0].as_numpy().tolist()
        try:
            await client.infer(url, {"inputs": []}, model_name=model)
        except httpx.HTTPStatusError as error:
            found["error"] = str(error)
    sys.stdout.write(json.dumps(found))


if __name__ == "__main__":
    asyncio.run(main(*sys.argv[1:]))
