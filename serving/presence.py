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
    caller = asyncio.current_task()
    assert caller is not None

    def cancel(_: object) -> None:
        caller.cancel()  # which waits in `work`: this runs in a turn of the loop that is not the caller's

    gone = asyncio.ensure_future(_disconnect(request))
    gone.add_done_callback(cancel)
    try:
        async with asyncio.timeout(max(0.0, within_s)) as limit:
            return await work
    except TimeoutError:
        if limit.expired():
            raise too_late() from None
        raise
    except asyncio.CancelledError:
        if not gone.done() or gone.cancelled():
            raise
        caller.uncancel()
        raise ClientDisconnect from None
    finally:
        gone.remove_done_callback(cancel)
        gone.cancel()


async def _disconnect(request: Request) -> None:
    while (await request.receive())["type"] != "http.disconnect":
        pass
