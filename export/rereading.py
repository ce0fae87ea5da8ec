"""Read a bundle's checkpoint again as it was read for the bundle: which weights, which names, which settled values."""

from pathlib import Path

from gaussport.errors import GaussportError
from gaussport.export.bundle.manifest import Manifest
from gaussport.models.checkpoint.opening import hash_of
from gaussport.models.checkpoint.stated import statement_of
from gaussport.models.checkpoint.wishes import Wishes, renames


def wishes_of(manifest: Manifest, checkpoint: Path) -> Wishes:
    """The wishes that lead to the bundle's weights when `checkpoint` is the file it was made of; of another file, only
    what the bundle knows of the model, for what that file leaves open."""
    origin = manifest.provenance
    known = dict(statement_of(manifest.config, "the bundle").values) if "attention" in manifest.config else {}
    if not _is_the_same(checkpoint, origin.checkpoint_sha256):
        return Wishes(known=known)
    size = known.get("image_size")
    if origin.resized_from is not None:
        known["image_size"] = list(origin.resized_from)
    return Wishes(
        weights=origin.weights_key or origin.weights,
        rename=renames(origin.renamed),
        input_size=None if origin.resized_from is None or size is None else (size[0], size[1]),
        known=known,
    )


def _is_the_same(checkpoint: Path, sha256: str) -> bool:
    try:
        return hash_of(checkpoint) == sha256
    except GaussportError:  # whoever reads it says what is wrong
        return False
