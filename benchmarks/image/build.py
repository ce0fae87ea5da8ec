"""Builds docker/Dockerfile with buildah, on any machine that has it: no daemon, no image registry needed.

The base image is pulled, or made by debootstrap where no registry answers. pip in the build gets the index that pip
uses outside: its configuration, its certificates and its folders of wheels are mounted, and leave no trace in the image.
"""

import json
import os
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from urllib.parse import urlparse

BASE = "docker.io/library/debian:bookworm-slim"
SUITE = "bookworm"
MEGABYTE = 1_000_000


@dataclass(frozen=True)
class Image:
    """A built image. `layers` are bytes of each layer above the base, uncompressed, in the order of the Dockerfile."""

    name: str
    layers: tuple[int, ...]
    config: dict[str, Any]


def build(target: str, name: str, context: Path, bundle: Path | None = None, dockerfile: Path | None = None) -> Image:
    """Build one target of the Dockerfile. `bundle` lies in the context."""
    ensure_base()
    arguments = [] if bundle is None else ["--build-arg", f"BUNDLE={bundle}"]
    with _pip_outside() as mounts:
        words = ["--format", "docker", "--layers", "--pull-never", "--target", target, "--tag", name, *arguments, *mounts]
        buildah("bud", *words, "--file", str(dockerfile or context / "docker" / "Dockerfile"), str(context), show=True)
    above = len(_inspect(BASE)["OCIv1"]["rootfs"]["diff_ids"])
    described = _inspect(name)
    sizes = [int(layer["size"]) for layer in json.loads(described["Manifest"])["layers"]]
    return Image(name, tuple(sizes[above:]), described["Docker"]["config"])


def buildah(*words: str, show: bool = False) -> str:
    """Run buildah in chroot isolation, which needs no privileges beyond root's own; returns what it printed."""
    environment = {**os.environ, "BUILDAH_ISOLATION": "chroot"}
    answer = subprocess.run(["buildah", *words], env=environment, text=True, stdout=None if show else subprocess.PIPE)
    if answer.returncode:
        raise SystemExit(f"buildah {words[0]} ended with {answer.returncode}")
    return (answer.stdout or "").strip()


def ensure_base() -> None:
    """Have the base image in the local storage."""
    if subprocess.run(["buildah", "inspect", "--type", "image", BASE], capture_output=True).returncode == 0:
        return
    if subprocess.run(["timeout", "120", "buildah", "pull", BASE], capture_output=True).returncode == 0:
        return
    with tempfile.TemporaryDirectory() as folder:
        subprocess.run(["debootstrap", "--variant=minbase", SUITE, f"{folder}/root"], check=True, stdout=sys.stderr)
        container = buildah("from", "scratch")
        buildah("add", "--quiet", container, f"{folder}/root", "/")
        buildah("config", "--cmd", "bash", container)
        buildah("commit", "--quiet", "--rm", container, BASE)


@contextmanager
def mounted(image: str) -> Iterator[Path]:
    """The image's file system, in a folder, for the time of the block."""
    container = buildah("from", "--pull-never", image)
    try:
        yield Path(buildah("mount", container))
    finally:
        buildah("rm", container)


def _inspect(image: str) -> dict[str, Any]:
    described: dict[str, Any] = json.loads(buildah("inspect", "--type", "image", image))
    return described


@contextmanager
def _pip_outside() -> Iterator[Sequence[str]]:
    """The words that give the build pip's settings of this machine, and the files and folders that they name."""
    listed = subprocess.run(
        [sys.executable, "-m", "pip", "config", "list"], capture_output=True, text=True, check=True
    ).stdout
    wanted = {"cert", "index-url", "extra-index-url", "find-links", "trusted-host", "proxy"}
    settings: dict[str, str] = {}
    for line in listed.splitlines():  # e.g. global.index-url='https://…'; the environment's settings come last
        name, _, value = line.partition("=")
        if (key := name.rpartition(".")[2]) in wanted:
            settings[key] = value.strip("'\"")
    mounts: dict[str, str] = {}
    for key, value in settings.items():
        for place in [part for part in value.split() if part.startswith(("/", "file:///"))]:
            outside = Path(urlparse(place).path)
            # Not where it is outside: a package of the build may own that path. With its folder: an index links upwards.
            inside = f"/mnt/index-{len(mounts)}"
            settings[key] = settings[key].replace(place, place.replace(str(outside.parent), inside))
            if outside.exists():
                mounts[str(outside.parent)] = inside
    with tempfile.TemporaryDirectory() as folder:
        file = Path(folder, "pip.conf")
        file.write_text("[global]\n" + "".join(f"{key} = {value}\n" for key, value in settings.items()))
        mounts[str(file)] = "/etc/pip.conf"
        yield [word for outside, inside in mounts.items() for word in ("--volume", f"{outside}:{inside}:ro")]
