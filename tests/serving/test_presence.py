"""Time limits, clients that leave and a server that ends: whoever still waits is told what happened, never 500."""

import asyncio
import contextlib
import json
from collections.abc import Awaitable, Callable
from typing import Any

import pytest
from starlette.requests import ClientDisconnect, Request

from gaussport.serving.errors import RequestError
from gaussport.serving.exchange import EXCHANGE
from gaussport.serving.metrics import Metrics
from gaussport.serving.patience import Patience, TimeIsOverError
from gaussport.serving.presence import while_connected
from gaussport.serving.request_scope import RequestScope
from gaussport.serving.tracing import Tracing

SCOPE = {"type": "http", "method": "POST", "path": "/", "headers": [], "query_string": b""}


class Connected:
    """What a request sees of its connection, ours or another server's."""

    def __init__(self, ours: bool) -> None:
        self.scope: dict[str, Any] = {**SCOPE, **({EXCHANGE: self} if ours else {})}
        self.leave: Callable[[], None] | None = None
        self.gone = asyncio.Event()

    def watch(self, leave: Callable[[], None]) -> None:
        self.leave = leave

    def unwatch(self) -> None:
        self.leave = None

    def hang_up(self) -> None:
        self.gone.set()
        if self.leave is not None:
            self.leave()

    async def receive(self) -> dict[str, str]:
        await self.gone.wait()
        return {"type": "http.disconnect"}


async def _in(seconds: float, result: str = "done") -> str:
    await asyncio.sleep(seconds)
    return result


def run(body: Awaitable[Any]) -> Any:
    async def main() -> Any:
        return await body

    return asyncio.run(main())


def test_patience_ends_what_takes_too_long_and_nothing_else() -> None:
    async def check() -> None:
        with Patience(5):
            assert await _in(0) == "done"
        with pytest.raises(TimeIsOverError), Patience(0):
            await _in(5)
        with pytest.raises(TimeoutError, match="another"), Patience(5):
            raise TimeoutError("another")
        with pytest.raises(TimeIsOverError), Patience(5), Patience(0):
            await _in(5)
        with pytest.raises(TimeIsOverError), Patience(0), Patience(5):
            await _in(5)
        with pytest.raises(TimeIsOverError), Patience(0), Patience(0):
            await _in(5)
        task = asyncio.current_task()
        assert task is not None
        assert not task.cancelling()
        await asyncio.sleep(0.001)  # nothing is left that would still cancel

    run(check())


def test_a_cancelled_task_is_cancelled_whatever_patience_it_has() -> None:
    async def patient(seconds: float) -> None:
        with Patience(seconds):
            await _in(5)

    async def check(seconds: float) -> None:
        task = asyncio.create_task(patient(seconds))
        await asyncio.sleep(0)
        task.get_loop().call_later(seconds, task.cancel)
        with pytest.raises(asyncio.CancelledError):
            await task

    run(check(0.01))
    run(check(0))


@pytest.mark.parametrize("ours", [True, False], ids=["our connection", "another server"])
def test_work_ends_with_its_client_or_its_time(ours: bool) -> None:
    async def check() -> None:
        stopped = asyncio.Event()

        async def work() -> str:
            try:
                return await _in(5)
            finally:
                stopped.set()

        connected = Connected(ours)
        request = Request(connected.scope, connected.receive)
        assert await while_connected(request, _in(0), 5) == "done"
        with pytest.raises(RequestError) as late:
            await while_connected(request, work(), 0)
        assert late.value.code == "deadline_passed"
        assert stopped.is_set()
        with pytest.raises(TimeoutError, match="own"):
            await while_connected(request, _raise(TimeoutError("own")), 5)
        stopped.clear()
        asyncio.get_running_loop().call_later(0.001, connected.hang_up)
        with pytest.raises(ClientDisconnect):
            await while_connected(request, work(), 5)
        assert stopped.is_set()
        assert connected.leave is None

    run(check())


async def _raise(error: Exception) -> None:
    raise error


@pytest.mark.parametrize("ours", [True, False], ids=["our connection", "another server"])
def test_whoever_leaves_when_the_answer_is_there_cancels_nothing(ours: bool) -> None:
    """The client hangs up in the very turn of the loop in which the work ends."""

    async def check() -> None:
        connected = Connected(ours)
        answer: asyncio.Future[str] = asyncio.get_running_loop().create_future()

        async def work() -> str:
            return await answer

        def both() -> None:
            answer.set_result("done")
            connected.gone.set()

        asyncio.get_running_loop().call_soon(both)
        request = Request(connected.scope, connected.receive)
        with contextlib.suppress(ClientDisconnect):
            assert await while_connected(request, work(), 5) == "done"
        await asyncio.sleep(0.001)  # a cancellation that came late would be raised here
        await asyncio.sleep(0.001)

    run(check())


def test_the_end_of_the_server_is_no_internal_error() -> None:
    """When its patience is over the server cancels what it has: that is 503, not 500, whatever the request waits for."""

    async def waits(scope: Any, receive: Any, send: Any) -> None:
        await _in(5)

    async def check() -> list[dict[str, Any]]:
        sent: list[dict[str, Any]] = []

        async def send(message: dict[str, Any]) -> None:
            sent.append(message)

        scope = {**SCOPE}
        task = asyncio.create_task(RequestScope(waits, Metrics(), Tracing())(scope, None, send))  # type: ignore[arg-type]
        await asyncio.sleep(0)
        task.cancel()
        await task
        assert scope["gaussport.code"] == "draining"
        return sent

    start, body = run(check())
    headers = dict(start["headers"])
    assert start["status"] == 503
    assert headers[b"retry-after"] == b"1"
    assert json.loads(body["body"])["code"] == "draining"
    assert json.loads(body["body"])["request_id"] == headers[b"x-request-id"].decode()
