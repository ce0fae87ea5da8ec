"""Folders that are checkpoints: shards with an index, Orbax, or one file among its notes."""

from pathlib import Path

from gaussport.errors import CheckpointError

INDEXES = (".safetensors.index.json", ".bin.index.json")
SUFFIXES = (".safetensors", ".pt", ".pth", ".bin", ".ckpt", ".msgpack")
_ORBAX_FILES = ("_METADATA", "manifest.ocdbt")
_ORBAX_ITEMS = ("default", "params", "state", "model")  # the names that its managers give to what they save


def orbax_root(folder: Path) -> Path | None:
    """The folder of arrays when `folder` is a checkpoint of Orbax, holds the one item of such, or the one step of many.

    Raises:
        CheckpointError: there are several steps.
    """
    if any((folder / name).is_file() for name in _ORBAX_FILES):
        return folder
    items = [folder / name for name in _ORBAX_ITEMS if any((folder / name / file).is_file() for file in _ORBAX_FILES)]
    if items:
        return items[0]
    steps = sorted((path for path in folder.iterdir() if path.is_dir() and path.name.isdigit()), key=lambda p: int(p.name))
    roots = [root for step in steps if (root := orbax_root(step)) is not None]
    if len(roots) > 1:
        raise CheckpointError(f"{shown(folder)} holds the steps {steps[0].name} to {steps[-1].name}: give the folder of one")
    return roots[0] if roots else None


def the_file_in(folder: Path) -> Path:
    """The index of the shards in `folder`, else its only checkpoint file.

    Raises:
        CheckpointError: there is none, or there are several, or it is a checkpoint of another kind.
    """
    if (folder / "bundle.json").is_file():
        raise CheckpointError(f"{shown(folder)} is a bundle, not a checkpoint: gaussport serve, verify and inspect take it")
    if (folder / ".metadata").is_file():
        raise CheckpointError(
            f"{shown(folder)} is a checkpoint of torch.distributed: convert it to one file with `python -m "
            f"torch.distributed.checkpoint.format_utils dcp_to_torch FOLDER FILE.pt`"
        )
    files = sorted(path for path in folder.iterdir() if path.is_file())
    found = [path for path in files if path.name.endswith(INDEXES)] or [path for path in files if path.suffix in SUFFIXES]
    if len(found) == 1:
        return found[0]
    if found:
        names = ", ".join(shown(path.name) for path in found[:3]) + (", …" if len(found) > 3 else "")
        raise CheckpointError(f"{shown(folder)} is a folder with {len(found)} checkpoints ({names}): give one of them")
    raise CheckpointError(f"{shown(folder)} is a folder without a checkpoint: give the checkpoint file inside it")


def shown(path: Path | str) -> str:
    """A path as text; bytes in it that are no text are replaced."""
    return str(path).encode(errors="replace").decode()
