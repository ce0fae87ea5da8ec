"""A worker process, as `supervisor` starts it: the errand on standard input, one line back when it is ready or cannot be."""

import asyncio
import json
import os
import pickle
import signal
import socket
import sys
from collections.abc import Sequence

from gaussport.errors import GaussportError
from gaussport.serving import logs
from gaussport.serving.server import run


def main() -> int:
    signal.signal(signal.SIGTERM, lambda *_: os._exit(0))  # until the loop runs there is nobody to answer
    size = int.from_bytes(sys.stdin.buffer.read(8), "big")
    paths, settings = pickle.loads(sys.stdin.buffer.read(size))
    logs.configure(settings)
    listener = socket.socket(fileno=int(sys.argv[1]))
    try:
        run(paths, settings, listener, lambda names: _tell("ready", names), _supervisor_gone)
    except GaussportError as error:
        _tell("fault", [str(error), str(error.exit_code)])
        return error.exit_code
    return 0


def _tell(word: str, facts: Sequence[str]) -> None:
    sys.stdout.write(json.dumps({word: list(facts)}) + "\n")
    sys.stdout.flush()


async def _supervisor_gone() -> None:
    """Returns when the other end of standard input is closed, which only the supervisor's end does."""
    loop = asyncio.get_running_loop()
    gone = asyncio.Event()
    loop.add_reader(sys.stdin.fileno(), gone.set)
    try:
        await gone.wait()
    finally:
        loop.remove_reader(sys.stdin.fileno())


if __name__ == "__main__":
    sys.exit(main())
