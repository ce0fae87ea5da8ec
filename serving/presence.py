"""Work for a client only as long as it is there: when it hangs up, its images leave the queue before they cost anything."""

import asyncio
from collections.abc import Callable, Coroutine
from typing import Any, TypeVar

from starlette.requests import ClientDisconnect, Request

from gaussport.serving.errors import too_late
from gaussport.serving.exchange import EXCHANGE, Exchange
from gaussport.serving.patience import Patience, TimeIsOverError

T = TypeVar("T")


async def while_connected(request: Request, work: Coroutine[Any, Any, T], within_s: float) -> T:
    """The result of `work`, which is cancelled when the client disconnects or its time is over, decoding included.
    The body must have been read."""
    caller = asyncio.current_task()
    assert caller is not None
    gone = False

    def leave() -> None:
        nonlocal gone
        gone = True
        caller.cancel()  # which waits in `work`: this runs in a turn of the loop that is not the caller's

    stop_watching = _watch(request, leave)
    try:
        with Patience(within_s):
            return await work
    except TimeIsOverError:
        raise too_late() from None
    except asyncio.CancelledError:
        if not gone or caller.uncancel():
            raise
        raise ClientDisconnect from None
    finally:
        stop_watching()


def _watch(request: Request, leave: Callable[[], None]) -> Callable[[], None]:
    """Call `leave` when the client goes, until the function that is returned was called. Our own connections tell;
    in front of another server's a task has to listen."""
    exchange: Exchange | None = request.scope.get(EXCHANGE)
    if exchange is not None:
        exchange.watch(leave)
        return exchange.unwatch
    listening = asyncio.ensure_future(_disconnect(request))
    watching = True

    def left(_: object) -> None:
        if watching:
            leave()

    def stop() -> None:
        nonlocal watching
        watching = False
        listening.cancel()

    listening.add_done_callback(left)
    return stop


async def _disconnect(request: Request) -> None:
    while (await request.receive())["type"] != "http.disconnect":
        pass
