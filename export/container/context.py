"""Writes the build context: this installation's own code, docker/Dockerfile with its locks, and the bundle.

Dockerfile   LICENSE   .dockerignore
docker/      locks, health check, bill of materials; docker/bundle is the bundle, which the Dockerfile copies to /bundle
src/         the package, as it is installed here; it links to the four folders beside it, as the repository's does
export/ models/ plugins/ serving/
"""

import re
import shutil
from dataclasses import dataclass
from pathlib import Path

import gaussport
from gaussport.errors import ExportError, UsageError
from gaussport.export.bundle.manifest import MANIFEST_FILE
from gaussport.export.bundle.store import Bundle, open_bundle
from gaussport.export.whole_folder import whole_folder

PACKAGE = Path(gaussport.__file__).parent
TARGETS = ("cpu", "gpu")
_FOLDERS = ("export", "models", "plugins", "serving")
_DOCKER_FILES = ("healthcheck.py", "sbom.py", "requirements-*.txt")
_LEFT_OUT = shutil.ignore_patterns("__pycache__", "*.safetensors")

# Docker's grammar of references: [registry[:port]/]path[:tag]
_PART = r"[a-z0-9]+(?:(?:\.|_|__|-+)[a-z0-9]+)*"
_REFERENCE = re.compile(rf"(?:[A-Za-z0-9][A-Za-z0-9.-]*(?::\d+)?/)?{_PART}(?:/{_PART})*(?::\w[\w.-]{{0,127}})?", re.ASCII)


@dataclass(frozen=True)
class Context:
    """A written build context, and what to know before building it."""

    folder: Path
    image: str
    target: str
    warnings: tuple[str, ...] = ()

    @property
    def command(self) -> list[str]:
        """Builds the image."""
        return ["docker", "build", "--target", self.target, "-t", self.image, str(self.folder)]


def default_folder(image: str) -> Path:
    """Where the context of an image goes unless another place is named: its name without registry and tag."""
    return Path(f"{image.rpartition('/')[2].partition(':')[0]}-context")


def write_context(path: Path, image: str, folder: Path, target: str = "cpu", overwrite: bool = False) -> Context:
    """Write the build context of one bundle.

    Raises:
        UsageError: the image's name is none, or the folder exists.
        BundleError: the bundle is missing or damaged.
        ExportError: this installation lacks the Dockerfile, the image could not serve the bundle, or nothing can be written.
    """
    check_image(image)
    bundle = open_bundle(path)
    if target == "cpu" and bundle.manifest.precision == "bf16":
        raise ExportError(f"{path} is bf16, which no CPU serves: pass --target gpu, or export with --precision fp16")
    resources = PACKAGE / "docker"
    if not (resources / "Dockerfile").is_file():
        raise ExportError(
            f"this installation has no {resources / 'Dockerfile'}: install gaussport from its wheel or sources"
        )
    with whole_folder(folder, "Dockerfile", overwrite) as draft:
        for name in ("Dockerfile", "LICENSE"):
            shutil.copyfile(resources / name, draft / name)
        (draft / ".dockerignore").write_text("**/__pycache__\n")
        (draft / "docker").mkdir()
        for pattern in _DOCKER_FILES:
            for file in sorted(resources.glob(pattern)):
                shutil.copyfile(file, draft / "docker" / file.name)
        _copy_package(draft)
        _copy_bundle(bundle, draft / "docker" / "bundle")
    return Context(folder, image, target, tuple(_warnings(bundle, target)))


def check_image(image: str) -> None:
    """Raise a UsageError unless `image` is a name that docker takes."""
    if not _REFERENCE.fullmatch(image):
        raise UsageError(f"{image!r} is not an image's name: give one like mnist-ssog or registry.example/team/mnist-ssog:1")


def _copy_package(draft: Path) -> None:
    """The package's code, laid out as in the repository, so that one Dockerfile fits both."""
    inside = draft / "src" / "gaussport"
    left_out = shutil.ignore_patterns("__pycache__", "docker", *_FOLDERS)
    shutil.copytree(PACKAGE, inside, ignore=lambda folder, names: left_out(folder, names) if Path(folder) == PACKAGE
                    else _LEFT_OUT(folder, names))  # fmt: skip
    for name in _FOLDERS:
        shutil.copytree(PACKAGE / name, draft / name, ignore=_LEFT_OUT)
        (inside / name).symlink_to(Path("..", "..", name))


def _copy_bundle(bundle: Bundle, folder: Path) -> None:
    """The bundle as a folder, each file's hash compared as it is copied."""
    for name in bundle.manifest.files:
        target = folder / name
        target.parent.mkdir(parents=True, exist_ok=True)
        bundle.copy(name, target)
    (folder / MANIFEST_FILE).write_text(bundle.manifest.model_dump_json(indent=2) + "\n", encoding="utf-8")


def _warnings(bundle: Bundle, target: str) -> list[str]:
    if target == "gpu" and not any(engine.builder == "tensorrt" for engine in bundle.manifest.engines.values()):
        return [f"{bundle.path} has no TensorRT engine: build one into it, or run the image with -e GAUSSPORT_PROVIDER=cuda"]
    return []
