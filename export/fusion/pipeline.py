"""From somebody's ONNX file to a proved bundle. Nothing appears at the destination unless every step ends well."""

from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from gaussport.errors import BundleError, ExportError
from gaussport.export.bundle.store import Bundle, open_bundle, writing_bundle
from gaussport.export.fusion.early import refuse_early
from gaussport.export.labels_file import read_labels
from gaussport.export.progress import Steps
from gaussport.export.wishes import (
    DEFAULT_MAX_BATCH,
    check_max_batch,
    check_not_the_input,
    check_plain,
    creation_time,
    model_name,
)
from gaussport.models.image.wishes import PictureWishes

if TYPE_CHECKING:
    from gaussport.export.fusion.rewriting import Fused, Refusal


@dataclass(frozen=True)
class FusedBundle:
    """The bundle, and what was found in the model."""

    bundle: Bundle
    fused: "tuple[Fused, ...]"
    refused: "tuple[Refusal, ...]"


class NothingFusedError(ExportError):
    """No part of the model is one of our operators; `refused` are those that only look alike."""

    def __init__(self, message: str, refused: "tuple[Refusal, ...]") -> None:
        super().__init__(message)
        self.refused = refused


def fuse_model(
    path: Path,
    destination: Path,
    *,
    labels: Path | None = None,
    pictures: PictureWishes | None = None,
    name: str | None = None,
    max_batch: int = DEFAULT_MAX_BATCH,
    external_data: bool = False,
    overwrite: bool = False,
    allow_none: bool = False,
) -> FusedBundle:
    """Write the bundle of the ONNX model at `path`, its attention replaced by our operators, to `destination`.

    The fused model is proved against the file itself, in ONNX Runtime, up to `max_batch`. `pictures` say how pictures are
    prepared; what they leave open is assumed and recorded. With `allow_none` a model without any of our operators is bundled
    as it is.

    Raises:
        UsageError: a wish cannot be fulfilled, or the destination cannot be written.
        ConfigurationError: labels or preprocessing do not fit the model.
        ExportError: the model cannot be used; NothingFusedError: nothing in it was found to be our operators.
        ProofError: the fused model answers differently.
        BundleError: writing failed.
    """
    check_max_batch(max_batch)
    check_plain(destination)
    check_plain(path)
    check_not_the_input(destination, path, labels)
    created = creation_time()
    chosen_name = model_name(name, path)
    chosen_labels = None if labels is None else read_labels(labels)
    try:
        with writing_bundle(destination, overwrite) as draft, Steps(total=5) as steps:
            refuse_early(path)
            from gaussport.export.fusion import bundling  # imports onnx and torch

            with steps.step("reading the model"):
                foreign = bundling.read_foreign_model(path)
                facts = bundling.facts_of(foreign, path, chosen_labels, pictures or PictureWishes())
            with steps.step("looking for our operators"):
                fusion = bundling.fuse(foreign.model)
                if not fusion.fused and not allow_none:
                    raise NothingFusedError(
                        f"{path.name} has none of our operators{_hint(len(fusion.refused))}", fusion.refused
                    )
                bundling.check_fusion(fusion)
            with steps.step("writing the model"):
                written = bundling.write_model(fusion.model, draft.folder, external_data)
                bundling.write_explanation(draft.folder, written, {})
            with steps.step("proving it against the file"):
                proof = bundling.prove_fusion(foreign, written, facts.preprocessing, max_batch)
                proof.require()
            with steps.step("writing report and manifest"):
                bundling.write_reports(draft.folder, chosen_name, proof, fusion, written)
                draft.finish(lambda files: bundling.manifest_of(facts, fusion, chosen_name, max_batch, created, files))
    except OSError as error:
        raise BundleError(f"{destination} cannot be written: {error.strerror or error}") from error
    return FusedBundle(open_bundle(destination, check_hashes=False), fusion.fused, fusion.refused)


def _hint(refused: int) -> str:
    alike = f", {refused} look alike and are told above" if refused else ""
    return f"{alike}: pass --allow-none for a bundle of the model as it is"
