"""A module of the caller's own, by `--model package.module:factory`: any trunk around our attention layers.

The factory is code that the caller asks for by name; nothing that a checkpoint or a bundle says is ever imported.
"""

import importlib
import sys
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from torch import Tensor, nn

from gaussport.errors import CheckpointError, ConfigurationError, ExportError, UsageError
from gaussport.export.bundle.manifest import FurtherInput
from gaussport.export.evaluation import evaluating, tensors_of
from gaussport.export.example_inputs import further_inputs_of
from gaussport.export.trained import Trained, hash_of_weights
from gaussport.models.checkpoint.contents import Stored
from gaussport.models.checkpoint.description import labels_from, metrics_from, preprocessing_from
from gaussport.models.checkpoint.folders import shown
from gaussport.models.checkpoint.numbers import check_tensors, finite_float32
from gaussport.models.checkpoint.opening import hash_of, open_stored
from gaussport.models.checkpoint.stated import labels_of
from gaussport.models.checkpoint.surveying import documents_of, preprocessing_document, weights_of
from gaussport.models.checkpoint.wishes import Wishes
from gaussport.models.image.preprocess import Preprocessing
from gaussport.models.text.wishes import TextWishes

FAMILY = "module"


def made_by(factory: str) -> nn.Module:
    """The module that `package.module:factory` makes; modules in the working directory are found, as by `python -m`.

    Raises:
        UsageError: the text is not of that form.
        ExportError: it cannot be imported, is not callable, fails, or makes something else.
    """
    name, separator, attribute = factory.partition(":")
    if not separator or not attribute.isidentifier() or not all(part.isidentifier() for part in name.split(".")):
        raise UsageError(f"--model is {factory!r} but must be package.module:factory, a function that makes the module")
    if str(Path.cwd()) not in sys.path:
        sys.path.insert(0, str(Path.cwd()))
    try:
        make = getattr(importlib.import_module(name), attribute)
    except AttributeError:
        raise ExportError(f"{name} has no {attribute}: check the name after the colon in --model {factory}") from None
    except Exception as error:
        raise ExportError(f"{name} cannot be imported: {_said(error)}") from error
    module = _called(make, factory)
    if not isinstance(module, nn.Module):
        raise ExportError(f"{factory} makes a {type(module).__name__} but must make a torch.nn.Module")
    return module


def read_module(
    path: Path,
    factory: str,
    config_path: Path | None = None,
    labels: Sequence[str] | None = None,
    wishes: Wishes | None = None,
    further_inputs: tuple[FurtherInput, ...] | None = None,
) -> Trained:
    """The module that `factory` makes, with the weights of the checkpoint at `path`, each under its own name.

    Preprocessing and labels come from the caller, the configuration file, or the checkpoint, in this order. What the
    checkpoint says of a configuration is for the factory to know. Inputs beside the pictures are `further_inputs`
    or, without them, what the module's `example_inputs` show.

    Raises:
        UsageError: a wish is one for our own classifiers.
        CheckpointError, ConfigurationError: the file cannot be used, or does not fit the module.
        ExportError: the module cannot be made, or does not map pictures to logits.
    """
    path, wishes = Path(path), wishes or Wishes()
    if wishes.settings or wishes.input_size is not None:
        raise UsageError("--set and --input-size are for the classifiers here: let the factory of --model do that")
    if wishes.text != TextWishes():
        raise UsageError("what is said about text is for the sequence classifiers here: leave it out beside --model")
    source = shown(path.name)
    stored = open_stored(path)
    module = made_by(factory).float()
    _, chosen, names = weights_of(stored, wishes, source, expected=list(module.state_dict()))
    check_tensors(names.tensors, source, stored.total_bytes, whole_numbers=True)
    _load(module, finite_float32(names.tensors, source), source, factory)
    documents = documents_of(path, config_path, stored, source)
    described = next((document for document in documents if labels_of(document.content) is not None), None)
    pictures = preprocessing_document(documents)
    preprocessing, assumed = preprocessing_from(
        pictures.content.get("preprocessing", pictures.content) if pictures else None,
        wishes.pictures,
        None,
        None,
        pictures.who if pictures else source,
    )
    stated = labels if labels is not None or described is None else labels_of(described.content)
    return trained_module(
        module,
        preprocessing,
        stated,
        further_inputs=further_inputs,
        config={"module": factory},
        source=source,
        sha256=hash_of(path),
        metrics=_metrics(stored),
        weights=chosen.kind,
        weights_key=chosen.key,
        renamed=tuple(f"{old}={new}" for old, new in wishes.rename),
        stored_dtypes=tuple(sorted({str(tensor.dtype).removeprefix("torch.") for tensor in chosen.tensors.values()})),
        assumed=assumed,
    )


def trained_module(
    module: nn.Module,
    preprocessing: Preprocessing,
    labels: Sequence[str] | None = None,
    *,
    further_inputs: tuple[FurtherInput, ...] | None = None,
    config: Mapping[str, Any] | None = None,
    source: str = "",
    sha256: str = "",
    assumed: tuple[str, ...] = (),
    **origin: Any,
) -> Trained:
    """What an export needs of a module that has its weights. It is run once, to see how many classes it has. Without
    `further_inputs` they are what the module's `example_inputs` show.

    Raises:
        ExportError: it asks for inputs that nobody showed, fails on those it has, or gives something else than logits.
        ConfigurationError: the labels are not one for each class.
    """
    name = source or type(module).__name__
    trained = Trained(
        module=module,
        family=FAMILY,
        config=dict(config or {"module": f"{type(module).__module__}:{type(module).__qualname__}"}),
        labels=(),
        preprocessing=preprocessing,
        further_inputs=further_inputs_of(module, name) if further_inputs is None else further_inputs,
        source=name,
        sha256=sha256 or hash_of_weights(module),
        assumed=(*assumed, *(() if labels is not None else ("labels",))),
        **origin,
    )
    return replace(trained, labels=labels_from(labels, _classes(trained), name))


def _classes(trained: Trained) -> int:
    name, inputs = trained.source, next(inputs for _, inputs in trained.probes.batches(1))
    try:
        with evaluating(trained.module):
            logits = trained.module(*tensors_of(inputs))
    except Exception as error:
        fed = " and ".join(f"{key} of shape {list(array.shape)}" for key, array in inputs.items())
        raise ExportError(f"the module of {name} fails on {fed}: {_said(error)}") from error
    if not isinstance(logits, Tensor) or logits.dim() != 2 or len(logits) != 1:
        found = list(logits.shape) if isinstance(logits, Tensor) else type(logits).__name__
        raise ExportError(f"the module of {name} gives {found} for one picture but must give logits [1, classes]")
    return int(logits.shape[1])


def _load(module: nn.Module, tensors: dict[str, Tensor], source: str, factory: str) -> None:
    expected = module.state_dict()
    missing = [name for name in expected if name not in tensors]
    unexpected = [name for name in tensors if name not in expected]
    faults = [f"lacks {len(missing)} of its {len(expected)} ({', '.join(missing[:3])})"] if missing else []
    faults += [f"has {len(unexpected)} that it does not know ({', '.join(unexpected[:3])})"] if unexpected else []
    if faults:
        raise CheckpointError(
            f"{source} does not hold the parameters of {factory}: it {' and '.join(faults)}; change names with --rename"
        )
    for name, wanted in expected.items():
        if tensors[name].shape != wanted.shape:
            raise ConfigurationError(
                f"{name} has shape {tuple(tensors[name].shape)} in {source} but {tuple(wanted.shape)} in {factory}: let it "
                "make the module that was trained"
            )
    module.load_state_dict(tensors)


def _called(make: Any, factory: str) -> object:
    if not callable(make):
        raise ExportError(f"{factory} is a {type(make).__name__} but must be a function that makes the module")
    call: Callable[[], object] = make
    try:
        return call()
    except Exception as error:
        raise ExportError(f"{factory} fails: {_said(error)}") from error


def _metrics(stored: Stored) -> dict[str, float]:
    return metrics_from(stored.description.get("metrics"))


def _said(error: Exception) -> str:
    """An error of other people's code in one line."""
    first = str(error).strip().partition("\n")[0]
    return f"{type(error).__name__}: {first}" if first else type(error).__name__
