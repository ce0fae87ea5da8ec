"""Work for a client only as long as it is there: when it hangs up, its images leave the queue before they cost anything."""

import asyncio
from collections.abc import Coroutine
from typing import Any, TypeVar

from starlette.requests import ClientDisconnect, Request

from gaussport.serving.errors import too_late

T = TypeVar("T")


async def while_connected(request: Request, work: Coroutine[Any, Any, T], within_s: float) -> T:
    """The result of `work`, which is cancelled when the client disconnects or its time is over, decoding included.
    The body must have been read."""
    task = asyncio.ensure_future(work)
    gone = asyncio.ensure_future(_disconnect(request))
    try:
        await asyncio.wait((task, gone), timeout=max(0.0, within_s), return_when=asyncio.FIRST_COMPLETED)
        if task.done():
            return task.result()
        raise ClientDisconnect if gone.done() else too_late()
    finally:
        gone.cancel()
        if not task.done():
            task.cancel()
            await asyncio.wait((task,))


async def _disconnect(request: Request) -> None:
    while (await request.receive())["type"] != "http.disconnect":
        pass
