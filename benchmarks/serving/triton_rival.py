"""Triton as a rival: what `gaussport triton-repository` writes, served by the real one."""

import contextlib
import os
import signal
import sys
from collections.abc import Iterator
from pathlib import Path

from servers import Bodies, Posts, v2_picture, v2_tensor, wait_for

sys.path.append(str(Path(__file__).parents[1]))

from processes import family, tell
from triton_repository import write_repository
from triton_server import Triton


def posts(bodies: Bodies) -> Posts:
    """The same tensors and files; Triton answers logits for both."""
    return {
        "tensor": [v2_tensor(bodies.name, row) for row in bodies.tensors],
        "JPEG": [v2_picture(bodies.name, jpeg) for jpeg in bodies.jpegs],
    }


@contextlib.contextmanager
def running(installed: Path, bundle: Path, bodies: Bodies, core: int, folder: Path) -> Iterator[tuple[int, int]]:
    """Process and port of a Triton on one core."""
    models = folder / "triton-models"
    write_repository(bundle.resolve(), models)
    with Triton(bundle, installed, folder, models) as triton:
        for process in family(triton.pid):
            for thread in Path(f"/proc/{process}/task").iterdir():
                with contextlib.suppress(ProcessLookupError):
                    os.sched_setaffinity(int(thread.name), [core])
        port = int(triton.url.rpartition(":")[2])
        wait_for(port, posts(bodies), triton._process, folder / "triton.log")  # type: ignore[arg-type]
        try:
            yield triton.pid, port
        finally:
            tell(family(triton.pid), signal.SIGCONT)
