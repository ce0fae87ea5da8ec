"""From a checkpoint file to a proved bundle, step by step. Nothing appears at the destination unless every step ends well.

Cheap refusals come first; torch is imported when only work is left.
"""

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from gaussport.errors import BundleError, UsageError
from gaussport.export.bundle.store import Bundle, open_bundle, writing_bundle
from gaussport.export.labels_file import read_labels
from gaussport.export.opsets import DEFAULT, check_opset
from gaussport.export.precision.wish import PrecisionWish
from gaussport.export.progress import Steps
from gaussport.export.wishes import (
    DEFAULT_MAX_BATCH,
    check_max_batch,
    check_not_the_input,
    check_picture_folder,
    check_plain,
    creation_time,
    model_name,
)
from gaussport.freed_memory import give_back_memory
from gaussport.models.checkpoint.early import refuse_early
from gaussport.models.checkpoint.wishes import Wishes
from gaussport.models.image.preprocess import Preprocessing

if TYPE_CHECKING:
    from torch import Tensor, nn

    from gaussport.export.trained import Trained


def export_checkpoint(
    checkpoint_path: Path,
    destination: Path,
    *,
    labels: Path | None = None,
    config_path: Path | None = None,
    wishes: Wishes | None = None,
    model: str | None = None,
    name: str | None = None,
    max_batch: int = DEFAULT_MAX_BATCH,
    opset: int = DEFAULT,
    external_data: bool = False,
    overwrite: bool = False,
    precision: PrecisionWish | None = None,
    reduced_decoding: str | None = None,
) -> Bundle:
    """Write the bundle of the checkpoint at `checkpoint_path` to `destination`, a folder or a `.zip`.

    `labels` is a file with one label a line or a JSON list, and `wishes` say how to read the checkpoint. With `model`, a
    `package.module:factory`, its weights are those of the module that the factory makes. The bundle is
    proved against PyTorch up to `max_batch`. Weights lie beside the graph, in `model.onnx.data`, with `external_data` or
    when one file cannot hold them. Without a `precision` the model is float32. With `reduced_decoding`, a folder of pictures
    on which the effect is measured, large JPEGs are not decoded whole.

    Raises:
        UsageError: a wish cannot be fulfilled, or the destination cannot be written.
        CheckpointError, ConfigurationError: the checkpoint cannot be used.
        ExportError: it cannot be turned into a model; ProofError: it can, but the answers differ.
        BundleError: writing failed.
    """
    check_opset(opset)
    check_max_batch(max_batch)
    (precision or PrecisionWish()).check()
    check_picture_folder("--reduced-decoding", reduced_decoding)
    check_plain(destination)
    tokenizer = (wishes or Wishes()).text.tokenizer
    check_not_the_input(destination, checkpoint_path, labels, config_path, tokenizer)
    chosen_name = model_name(name, checkpoint_path)
    chosen_labels = None if labels is None else read_labels(labels)

    def read() -> "Trained":
        refuse_early(checkpoint_path)  # before torch is imported
        from gaussport.export import work

        if model is not None:
            return work.read_module(checkpoint_path, model, config_path, chosen_labels, wishes)
        checkpoint = work.read_any_checkpoint(checkpoint_path, config_path, chosen_labels, wishes)
        if reduced_decoding is not None and not isinstance(checkpoint.preprocessing, Preprocessing):
            raise UsageError(f"{checkpoint.source} reads text, and --reduced-decoding is of pictures: leave it out")
        return work.trained_classifier(
            checkpoint, work.tokenizer_files(checkpoint.preprocessing, tokenizer, checkpoint_path)
        )

    wish = precision or PrecisionWish()
    return _written(destination, read, chosen_name, max_batch, opset, external_data, overwrite, wish, reduced_decoding)


def export_module(
    module: "nn.Module",
    destination: Path,
    preprocessing: Preprocessing,
    *,
    example_inputs: "Mapping[str, Tensor] | None" = None,
    labels: Sequence[str] | None = None,
    config: Mapping[str, Any] | None = None,
    name: str | None = None,
    max_batch: int = DEFAULT_MAX_BATCH,
    opset: int = DEFAULT,
    external_data: bool = False,
    overwrite: bool = False,
    precision: PrecisionWish | None = None,
    reduced_decoding: str | None = None,
) -> Bundle:
    """Write the bundle of any module that maps pixels [batch, C, height, width], as `preprocessing` makes them, to logits
    [batch, classes], with or without our attention layers in it. What its forward takes beside the pixels, `example_inputs`
    shows by the parameters' names, tensors [batch, …]; without it, the module's own attribute of that name.

    The module is traced in eval mode and given back as it was. `labels` are one for each class, `config` is what the bundle
    says of the module, and `name` is its name on the server, else its class's. The rest is as for `export_checkpoint`.

    Raises:
        UsageError: a wish cannot be fulfilled, or the destination cannot be written.
        ConfigurationError: the labels do not fit.
        ExportError: it cannot be turned into a model; ProofError: it can, but the answers differ.
        BundleError: writing failed.
    """
    check_opset(opset)
    check_max_batch(max_batch)
    (precision or PrecisionWish()).check()
    check_picture_folder("--reduced-decoding", reduced_decoding)
    check_plain(destination)
    chosen_name = model_name(name, Path(type(module).__name__))

    def read() -> "Trained":
        from gaussport.export import work

        further = work.further_inputs_of(module, chosen_name, example_inputs)
        return work.trained_module(module, preprocessing, labels, config=config, further_inputs=further)

    wish = precision or PrecisionWish()
    return _written(destination, read, chosen_name, max_batch, opset, external_data, overwrite, wish, reduced_decoding)


def _written(
    destination: Path,
    read: Callable[[], "Trained"],
    name: str,
    max_batch: int,
    opset: int,
    external_data: bool,
    overwrite: bool,
    wish: PrecisionWish,
    reduced_decoding: str | None,
) -> Bundle:
    """The bundle of what `read` gives, in steps that a progress bar shows."""
    created = creation_time()
    try:
        with writing_bundle(destination, overwrite) as draft, Steps(total=9) as steps:
            with steps.step("reading the checkpoint"):
                trained = read()
                give_back_memory()  # of the file, and of the weights that a module begins with
            from gaussport.export import work  # imports torch

            work.check_sources(wish, trained)
            with steps.step("tracing the model"):
                model = work.export_onnx(trained.module, trained.takes, opset)
            probes = trained.probes
            with steps.step("choosing types"):
                conversion = work.convert(model, wish, probes, trained.samples, steps.watch)
            with steps.step("writing the model"):
                written = work.write_model(conversion.model, draft.folder, external_data)
                work.write_explanation(draft.folder, written, work.constants_of(trained.module))
                step = work.write_stream(trained, draft.folder, written, opset)
                for file, content in trained.files.items():
                    (draft.folder / file).write_bytes(content)
            with steps.step("proving it against PyTorch"):
                runners, questions = work.remembered(work.sessions_in_turns(written)), probes.questions(max_batch)
                precision = work.precision_of(conversion.model)
                proof = work.prove_runners(trained.module, runners, questions, precision)
                work.require_proof(proof, conversion, trained.module, questions, steps.watch)
                padding = work.prove_padding(trained, runners, questions, precision)
                streaming = work.prove_stream(trained, step)
                del runners, questions  # the largest things in memory
                give_back_memory()
            with steps.step("measuring accuracy"):
                accuracy = work.require_accuracy(trained, written, conversion, wish, steps.watch)
            with steps.step("decoding reduced"):
                trained, effect = work.reduced_where_measured(trained, written, reduced_decoding, steps.watch)
            with steps.step("writing the report"):
                record = work.record_of(conversion, accuracy, work.finite(trained.metrics))
                graph = work.graph_summary(conversion.model, written, trained.parameter_shapes)
                beside = {"padding": padding, "streams": streaming}
                work.write_reports(draft.folder, name, proof, graph, record, effect, beside)
            with steps.step("writing the manifest"):
                draft.finish(lambda files: work.manifest_of(trained, conversion, name, max_batch, created, files))
    except OSError as error:
        raise BundleError(f"{destination} cannot be written: {error.strerror or error}") from error
    return open_bundle(destination, check_hashes=False)
