"""A plain FastAPI server with a batcher of forty lines, as many teams write it themselves."""

import asyncio
from collections.abc import AsyncIterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import asynccontextmanager
from typing import Any

import numpy as np
import uvicorn
import work
from fastapi import FastAPI, Request, Response

model = work.Model()
inference, decoding = ThreadPoolExecutor(1), ThreadPoolExecutor(1)
queue: "asyncio.Queue[tuple[Any, asyncio.Future[Any]]]" = asyncio.Queue()


async def serve_batches() -> None:
    loop = asyncio.get_running_loop()
    while True:
        waiting = [await queue.get()]
        due = loop.time() + work.MAX_DELAY_S
        while len(waiting) < work.MAX_BATCH:
            try:
                async with asyncio.timeout_at(due):
                    waiting.append(await queue.get())
            except TimeoutError:
                break
        rows = np.stack([row for row, _ in waiting])
        logits = await loop.run_in_executor(inference, model.run, rows)
        for (_, answer), row in zip(waiting, logits, strict=True):
            answer.set_result(row)


@asynccontextmanager
async def lifespan(app: FastAPI) -> AsyncIterator[None]:
    worker = asyncio.create_task(serve_batches())
    yield
    worker.cancel()


app = FastAPI(lifespan=lifespan)


async def logits_of(row: Any) -> Any:
    answer: asyncio.Future[Any] = asyncio.get_running_loop().create_future()
    await queue.put((row, answer))
    return await answer


@app.post("/tensor")
async def tensor(request: Request) -> Response:
    logits = await logits_of(work.row_of_tensor(await request.body()))
    return Response(logits.tobytes(), media_type="application/octet-stream")


@app.post("/jpeg")
async def jpeg(request: Request) -> Response:
    body = await request.body()
    row = await asyncio.get_running_loop().run_in_executor(decoding, work.row_of_jpeg, body)
    return Response(work.json_of(await logits_of(row)), media_type="application/json")


if __name__ == "__main__":
    uvicorn.run(app, port=work.PORT, log_level="error", access_log=False)
