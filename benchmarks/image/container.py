"""Runs an image the strict way without a container engine: its file system read-only, nobody's user, no capabilities, as
process 1 of its own process namespace, on the host's network."""

import os
import subprocess
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

_PREPARE = """
set -e
root=$1; shift
mount --rbind "$root" "$root"
mount -t proc proc "$root/proc"
mount --rbind /dev "$root/dev"
for pair in $MOUNTS; do
    mount --bind "${pair%%=*}" "$root${pair##*=}"
    mount -o remount,bind,ro "$root${pair##*=}"
done
mount -t tmpfs -o size=64m tmpfs "$root/tmp"
mount -o remount,bind,ro "$root"
exec chroot "$root" /usr/bin/env -i "$@"
"""
_UNPRIVILEGED = ("/usr/bin/setpriv", "--clear-groups", "--no-new-privs", "--inh-caps=-all", "--bounding-set=-all")


class Container:
    """One running container. `mounts` are folders outside → inside, read-only."""

    def __init__(
        self,
        root: Path,
        config: Mapping[str, Any],
        arguments: Sequence[str] | None = None,
        environment: Mapping[str, str] | None = None,
        mounts: Mapping[Path, str] | None = None,
    ) -> None:
        user, _, group = config["User"].partition(":")
        variables = [*config["Env"], *(f"{key}={value}" for key, value in (environment or {}).items())]
        command = [*config["Entrypoint"], *(config["Cmd"] if arguments is None else arguments)]
        pairs = " ".join(f"{outside.resolve()}={inside}" for outside, inside in (mounts or {}).items())
        words = [*_UNPRIVILEGED, f"--reuid={user}", f"--regid={group}", "--", *command]
        self.process = subprocess.Popen(
            [
                "unshare",
                "--mount",
                "--pid",
                "--fork",
                "--kill-child",
                "sh",
                "-c",
                _PREPARE,
                "sh",
                str(root),
                *variables,
                *words,
            ],
            env={**os.environ, "MOUNTS": pairs},
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )

    def first_line(self) -> str:
        assert self.process.stdout is not None
        return self.process.stdout.readline().strip()

    def pid(self) -> int:
        """The process that is number 1 inside, as the outside numbers it."""
        children = Path(f"/proc/{self.process.pid}/task/{self.process.pid}/children").read_text().split()
        return int(children[0])

    def stop(self, signal_number: int, patience_s: float = 30.0) -> float:
        """Send the signal and wait for the end. Returns seconds."""
        began = time.monotonic()
        os.kill(self.pid(), signal_number)
        self.process.wait(patience_s)
        return time.monotonic() - began

    def end(self, patience_s: float = 60.0) -> tuple[int, str]:
        """Wait for a container that ends by itself: its exit code and what it wrote to standard error."""
        _, errors = self.process.communicate(timeout=patience_s)
        return self.process.returncode, errors.strip()
