"""From a checkpoint file to a proved bundle, step by step. Nothing appears at the destination unless every step ends well.

Cheap refusals come first; torch is imported when only work is left.
"""

from pathlib import Path

from gaussport.errors import BundleError
from gaussport.export.bundle.store import Bundle, open_bundle, writing_bundle
from gaussport.export.labels_file import read_labels
from gaussport.export.opsets import DEFAULT, check_opset
from gaussport.export.progress import Steps
from gaussport.export.wishes import (
    DEFAULT_MAX_BATCH,
    check_max_batch,
    check_not_the_input,
    check_plain,
    creation_time,
    model_name,
)


def export_checkpoint(
    checkpoint_path: Path,
    destination: Path,
    *,
    labels: Path | None = None,
    config_path: Path | None = None,
    name: str | None = None,
    max_batch: int = DEFAULT_MAX_BATCH,
    opset: int = DEFAULT,
    external_data: bool = False,
    overwrite: bool = False,
) -> Bundle:
    """Write the bundle of the checkpoint at `checkpoint_path` to `destination`, a folder or a `.zip`.

    `labels` is a file with one label a line or a JSON list. The bundle is proved against PyTorch up to `max_batch`. Weights
    lie beside the graph, in `model.onnx.data`, with `external_data` or when one file cannot hold them.

    Raises:
        UsageError: a wish cannot be fulfilled, or the destination cannot be written.
        CheckpointError, ConfigurationError: the checkpoint cannot be used.
        ExportError: it cannot be turned into a model; ProofError: it can, but the answers differ.
        BundleError: writing failed.
    """
    check_opset(opset)
    check_max_batch(max_batch)
    check_plain(destination)
    check_not_the_input(destination, checkpoint_path, labels, config_path)
    created = creation_time()
    chosen_name = model_name(name, checkpoint_path)
    chosen_labels = None if labels is None else read_labels(labels)
    try:
        with writing_bundle(destination, overwrite) as draft, Steps(total=6) as steps:
            from gaussport.export import work  # imports torch

            with steps.step("reading the checkpoint"):
                checkpoint = work.read_checkpoint(checkpoint_path, config_path, chosen_labels)
                classifier = work.build_classifier(checkpoint)
            with steps.step("tracing the model"):
                model = work.export_onnx(classifier, checkpoint.preprocessing.tensor_shape, opset)
            with steps.step("writing the model"):
                written = work.write_model(model, draft.folder, external_data)
            with steps.step("proving it against PyTorch"):
                proof = work.prove(
                    classifier, written, work.Probes.of(checkpoint.preprocessing, checkpoint.config.patch), max_batch
                )
                proof.require()
            with steps.step("writing the report"):
                work.write_reports(draft.folder, chosen_name, proof, work.graph_summary(model, written))
            with steps.step("writing the manifest"):
                draft.finish(lambda files: work.manifest_of(checkpoint, model, chosen_name, max_batch, created, files))
    except OSError as error:
        raise BundleError(f"{destination} cannot be written: {error.strerror or error}") from error
    return open_bundle(destination, check_hashes=False)
