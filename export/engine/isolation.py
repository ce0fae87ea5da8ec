"""Runs the worker process, and turns every way in which it may end into an answer or one sentence."""

import os
import signal
import subprocess
import sys
from pathlib import Path

from gaussport.errors import EngineError
from gaussport.export.bundle.engines import BUILDERS
from gaussport.export.engine.backend import soname_links
from gaussport.export.engine.request import ERROR, LOG, Answer, Request

_LINKS = "lib"


def run_worker(request: Request, folder: Path) -> Answer:
    """Build one engine in a process of its own; `folder` holds the model, and afterwards what was made.

    Raises:
        EngineError: the worker refused or crashed.
        KeyboardInterrupt: the user did not want to wait.
    """
    request.write(folder)
    command = [sys.executable, "-m", "gaussport.export.engine.worker", str(folder)]
    process = subprocess.Popen(
        command, stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, env=_environment(request, folder)
    )
    try:
        code = process.wait()
    except KeyboardInterrupt:  # the terminal tells the worker too, which ends at TensorRT's next step
        process.wait()
        raise
    if code == 0:
        return Answer.read(folder)
    if code == 1 and (folder / ERROR).exists():
        raise EngineError((folder / ERROR).read_text(encoding="utf-8"))
    died = signal.Signals(-code).name if -code in signal.valid_signals() else f"exit code {code}"
    raise EngineError(f"{BUILDERS[request.builder]} ended its process with {died} after saying: {_last_words(folder)}")


def _environment(request: Request, folder: Path) -> dict[str, str]:
    links = folder / _LINKS
    for name, library in soname_links(request.builder).items():
        links.mkdir(exist_ok=True)
        (links / name).symlink_to(library)
    if not links.is_dir():
        return dict(os.environ)
    before = os.environ.get("LD_LIBRARY_PATH")
    return {**os.environ, "LD_LIBRARY_PATH": f"{links}{os.pathsep}{before}" if before else str(links)}


def _last_words(folder: Path) -> str:
    try:
        lines = (folder / LOG).read_text(encoding="utf-8", errors="replace").splitlines()
    except OSError:
        lines = []
    return lines[-1] if lines else "nothing"
