"""Several worker processes behind one listening socket: started, told to stop, and started again when one dies.

Workers are new processes, not forks: ONNX Runtime's threads would not survive one. They share the socket, so a
connection that waits when a worker dies is taken by another. A worker whose supervisor is gone drains and ends.
"""

import asyncio
import json
import logging
import os
import pickle
import shutil
import signal
import socket
import sys
import tempfile
import time
from asyncio.subprocess import Process
from collections.abc import Callable, Sequence
from pathlib import Path

from prometheus_client.multiprocess import mark_process_dead

from gaussport.errors import ServingError, UsageError
from gaussport.serving.metrics import FOLDER_VARIABLE
from gaussport.serving.settings import Settings

log = logging.getLogger("gaussport.serving")

_GRACE_S = 5.0  # beyond the drain, before a worker that does not end is killed
_STEADY_S = 10.0  # a worker that lived this long is started again at once
_LONGEST_PAUSE_S = 30.0


def supervise(
    paths: Sequence[Path], settings: Settings, listener: socket.socket, ready: Callable[[Sequence[str]], None]
) -> int:
    """Run the workers until told to stop. `ready` is called once, when all of them serve."""
    try:
        folder = Path(tempfile.mkdtemp(prefix="gaussport-metrics-"))
    except OSError as error:
        raise ServingError(
            "several workers share their metrics in a temporary folder and none can be made: let /tmp be writable, "
            "set TMPDIR, or serve with --workers 1"
        ) from error
    try:
        return asyncio.run(_Supervisor(paths, settings, listener, folder).run(ready))
    finally:
        shutil.rmtree(folder, ignore_errors=True)


class _Supervisor:
    def __init__(self, paths: Sequence[Path], settings: Settings, listener: socket.socket, folder: Path) -> None:
        self._errand = pickle.dumps((tuple(paths), settings))
        self._settings = settings
        self._listener = listener
        self._folder = folder
        self._processes: dict[int, Process] = {}
        self._stopping = False

    async def run(self, ready: Callable[[Sequence[str]], None]) -> int:
        loop = asyncio.get_running_loop()
        for number in (signal.SIGTERM, signal.SIGINT):
            loop.add_signal_handler(number, self._stop, number)
        loop.add_signal_handler(signal.SIGHUP, self._tell, signal.SIGHUP)
        first = [loop.create_future() for _ in range(self._settings.workers)]
        keepers = [loop.create_task(self._keep(index, report)) for index, report in enumerate(first)]
        try:
            reports = await asyncio.gather(*first)
            if not self._stopping:
                ready(reports[0])
            await asyncio.gather(*keepers)
        finally:
            self._stop(signal.SIGTERM)
            await asyncio.gather(*keepers, return_exceptions=True)
        return 0

    async def _keep(self, index: int, first: "asyncio.Future[list[str]]") -> None:
        """Have worker number `index` run for as long as the server does."""
        pause_s = 0.5
        while not self._stopping:
            began = time.monotonic()
            process = await self._start()
            self._processes[index] = process
            report = await self._report(process)
            if not first.done():
                if "fault" in report:
                    first.set_exception(_fault(report))
                else:
                    first.set_result(report.get("ready", []))
            code = await self._end_of(process)
            mark_process_dead(process.pid, str(self._folder))  # type: ignore[no-untyped-call]
            if self._stopping or first.exception() is not None:
                return
            lived_s = time.monotonic() - began
            log.error("worker %d (process %d) ended with code %d and is started again", index, process.pid, code)
            pause_s = 0.0 if lived_s >= _STEADY_S else min(_LONGEST_PAUSE_S, pause_s * 2)
            await asyncio.sleep(pause_s)
            pause_s = max(pause_s, 0.5)

    async def _start(self) -> Process:
        descriptor = self._listener.fileno()
        process = await asyncio.create_subprocess_exec(
            sys.executable,
            *("-m", "gaussport.serving.worker", str(descriptor)),
            stdin=asyncio.subprocess.PIPE,
            stdout=asyncio.subprocess.PIPE,
            pass_fds=(descriptor,),
            start_new_session=True,  # a terminal's Ctrl-C is ours to hand on
            env={**os.environ, FOLDER_VARIABLE: str(self._folder)},
        )
        assert process.stdin is not None
        process.stdin.write(len(self._errand).to_bytes(8, "big") + self._errand)  # and stays open: its end is ours
        return process

    async def _report(self, process: Process) -> dict[str, list[str]]:
        """What the worker says when it is ready or cannot be; nothing from one that died before."""
        assert process.stdout is not None
        line = await process.stdout.readline()
        if self._stopping:
            return {}
        report: dict[str, list[str]] = json.loads(line) if line else {"fault": ["a worker died while it started", "1"]}
        return report

    async def _end_of(self, process: Process) -> int:
        if not self._stopping:
            return await process.wait()
        try:
            return await asyncio.wait_for(process.wait(), self._settings.drain_timeout_s + _GRACE_S)
        except TimeoutError:
            log.error("process %d did not end in time and is killed", process.pid)
            process.kill()
            return await process.wait()

    def _stop(self, number: signal.Signals) -> None:
        if not self._stopping:
            self._stopping = True
            self._listener.close()  # the last of the workers to close it takes whoever still waits
            number = signal.SIGTERM
            asyncio.get_running_loop().call_later(self._settings.drain_timeout_s + _GRACE_S, self._tell, signal.SIGKILL)
        self._tell(number)

    def _tell(self, number: signal.Signals) -> None:
        for process in self._processes.values():
            if process.returncode is None:
                process.send_signal(number)


def _fault(report: dict[str, list[str]]) -> ServingError | UsageError:
    message, code = report["fault"]
    return UsageError(message) if code == "2" else ServingError(message)
