"""Read a bundle's checkpoint again as it was read for the bundle: which weights, which names, which settled values."""

from dataclasses import replace
from pathlib import Path

from gaussport.errors import GaussportError, UsageError
from gaussport.export.bundle.manifest import MANIFEST_FILE, Manifest
from gaussport.export.own_module import FAMILY, read_module
from gaussport.export.trained import Trained, trained_classifier
from gaussport.models.checkpoint.kinds import PICTURES, SEQUENCES
from gaussport.models.checkpoint.opening import hash_of
from gaussport.models.checkpoint.reading import read_any_checkpoint
from gaussport.models.checkpoint.stated import statement_of
from gaussport.models.checkpoint.wishes import Wishes, renames
from gaussport.models.image.wishes import PictureWishes
from gaussport.models.text.tokenization import Tokenization
from gaussport.models.text.wishes import TextWishes


def read_again(manifest: Manifest, checkpoint: Path, config: Path | None, model: str | None) -> Trained:
    """The module with the weights of `checkpoint`, read as they were for the bundle; of another file than the bundle was
    made of, what that file says, and of the bundle only what it leaves open. `model` is the factory of a module of the
    caller's own: the one that the bundle names is never imported.

    Raises:
        UsageError: it is such a bundle and no factory is given, or the other way round.
        CheckpointError, ConfigurationError: the checkpoint cannot be used.
        ExportError: the module cannot be made.
    """
    wishes = _wishes_of(manifest, checkpoint)
    if (manifest.family == FAMILY) != (model is not None):
        named = manifest.config.get("module", "a module")
        cure = f"it was made from {named}, give that with --model" if model is None else "leave --model out"
        raise UsageError(f"the bundle is of the family {manifest.family}: {cure}")
    if model is None:
        return trained_classifier(read_any_checkpoint(checkpoint, config, None, wishes))
    document = manifest.preprocessing.model_dump(mode="json")
    pictures = PictureWishes(document=document, document_name=MANIFEST_FILE)
    wishes = replace(wishes, known={}, pictures=pictures)
    return read_module(checkpoint, model, config, None, wishes, manifest.further_inputs)


def _wishes_of(manifest: Manifest, checkpoint: Path) -> Wishes:
    """The wishes that lead to the bundle's weights when `checkpoint` is the file it was made of; of another file, only
    what the bundle knows of the model, for what that file leaves open."""
    origin = manifest.provenance
    kind, stated = SEQUENCES if manifest.takes_text else PICTURES, "attention" in manifest.config
    known = dict(statement_of(manifest.config, "the bundle", kind).values) if stated else {}
    text = _of_text(manifest.tokenization) if manifest.takes_text else TextWishes()
    if not _is_the_same(checkpoint, origin.checkpoint_sha256):
        return Wishes(known=known, text=text)
    size = known.get("image_size")
    if origin.resized_from is not None:
        known["image_size"] = list(origin.resized_from)
    return Wishes(
        weights=origin.weights_key or origin.weights,
        rename=renames(origin.renamed),
        input_size=None if origin.resized_from is None or size is None else (size[0], size[1]),
        known=known,
        text=text,
    )


def _of_text(spec: Tokenization) -> TextWishes:
    """The bundle's own tokenizer is the one that the proof needs: its tokens are all that a model reads."""
    tokenizer = Path(spec.file) if spec.file else None
    return TextWishes(
        tokenizer=tokenizer, max_tokens=spec.max_tokens, stride=spec.stride, long_documents=spec.long_documents
    )


def _is_the_same(checkpoint: Path, sha256: str) -> bool:
    try:
        return hash_of(checkpoint) == sha256
    except GaussportError:  # whoever reads it says what is wrong
        return False
