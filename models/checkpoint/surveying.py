"""Look at a checkpoint without judging it: what the file is, which weights it has, what it and its neighbours say of the
model, and what nobody says. `reading` makes a classifier's checkpoint of a survey that has no gaps."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

from torch import Tensor

from gaussport.models.checkpoint.contents import Stored
from gaussport.models.checkpoint.folders import shown
from gaussport.models.checkpoint.kinds import kind_of
from gaussport.models.checkpoint.layouts import Laid, laid_out
from gaussport.models.checkpoint.names import Named, named
from gaussport.models.checkpoint.numbers import check_tensors, finite_float32
from gaussport.models.checkpoint.opening import hash_of, open_stored
from gaussport.models.checkpoint.settling import Settled, Statement, settle
from gaussport.models.checkpoint.sidecar import PREPROCESSOR, found_beside, read_sidecar
from gaussport.models.checkpoint.stated import labels_of, settings_statement, statement_of
from gaussport.models.checkpoint.weight_sets import WeightSet, choose, weight_sets
from gaussport.models.checkpoint.wishes import Wishes
from gaussport.models.image.forms import states_preprocessing

_ARGUMENTS = ("hyper_parameters", "hparams", "args", "config", "cfg")
"""Where training scripts keep their own settings: words of theirs fill gaps and prove nothing."""


@dataclass(frozen=True)
class Document:
    """A mapping that describes the model, and where it is."""

    who: str
    content: Mapping[str, Any]


@dataclass(frozen=True)
class Survey:
    """Everything that was found. `documents` are in the order in which they count."""

    path: Path
    stored: Stored
    sets: Sequence[WeightSet]
    chosen: WeightSet
    named: Named
    laid: Laid
    settled: Settled
    documents: Sequence[Document]

    @property
    def source(self) -> str:
        return shown(self.path.name)

    @cached_property
    def sha256(self) -> str:
        return hash_of(self.path)

    @property
    def stored_dtypes(self) -> tuple[str, ...]:
        return tuple(sorted({str(tensor.dtype).removeprefix("torch.") for tensor in self.chosen.tensors.values()}))

    @property
    def preprocessing(self) -> Document | None:
        return preprocessing_document(self.documents)

    @property
    def tokenization(self) -> object:
        """The first that says how text becomes tokens."""
        found = (document.content["preprocessing"] for document in self.documents if "preprocessing" in document.content)
        return next(found, None)

    @property
    def labels(self) -> Document | None:
        """The first document that names the classes."""
        return next((document for document in self.documents if labels_of(document.content) is not None), None)


def survey_checkpoint(path: Path, config_path: Path | None = None, wishes: Wishes | None = None) -> Survey:
    """Survey the checkpoint at `path`, with the configuration at `config_path` or else those that lie beside it.

    Raises:
        CheckpointError: the file cannot be read, holds no weights, or not the set that is wished for.
        ConfigurationError: a configuration cannot be read, or two statements about the model differ.
        UsageError: a wish names a field that there is not.
    """
    path, wishes = Path(path), wishes or Wishes()
    source = shown(path.name)
    settings = settings_statement(wishes.settings)
    stored = open_stored(path)
    sets, chosen, names = weights_of(stored, wishes, source)
    check_tensors(names.tensors, source, stored.total_bytes)
    laid = laid_out(names.tensors, stored.flax, source)
    shapes = {name: tuple(tensor.shape) for name, tensor in laid.tensors.items()}
    documents, kind = documents_of(path, config_path, stored, source), kind_of(shapes)
    statements, fallbacks = [settings], []
    for document in documents:
        inner = document.content.get("config")
        own = isinstance(inner, Mapping) and "attention" in inner
        if own or document.who != source:
            content = inner if isinstance(inner, Mapping) else document.content
            statements.append(statement_of(content, document.who, kind))
    for key in _ARGUMENTS:
        value = _plain(stored.description.get(key))
        if value and "attention" not in value:
            fallbacks.append(statement_of(value, f"{key} of {source}", kind))
    fallbacks.append(Statement("a former reading", wishes.known))
    settled = settle(statements, shapes, laid.sizes, fallbacks, stored.flax, source)
    return Survey(path, stored, sets, chosen, names, laid, settled, documents)


def weights_of(
    stored: Stored, wishes: Wishes, source: str, expected: Sequence[str] | None = None
) -> tuple[list[WeightSet], WeightSet, Named]:
    """All sets of weights in a file, the one that is wished for, and that one by the model's own names."""
    content: Mapping[str, Any] = stored.content
    if stored.ties:
        content = {**content, **{dropped: content[kept] for dropped, kept in stored.ties.items()}}
    sets = weight_sets(content, source)
    chosen = choose(sets, wishes.weights, source)
    return sets, chosen, named(chosen.tensors, wishes.rename, source, expected)


def preprocessing_document(documents: Sequence[Document]) -> Document | None:
    """The first that says how pictures are prepared."""
    return next((document for document in documents if states_preprocessing(document.content)), None)


def float32_of(survey: Survey) -> dict[str, Tensor]:
    """The surveyed weights as numbers to compute with.

    Raises:
        CheckpointError: a tensor is not finite; the message names it.
    """
    return finite_float32(survey.laid.tensors, survey.source)


def documents_of(path: Path, config_path: Path | None, stored: Stored, source: str) -> list[Document]:
    """Those that the caller gave or that lie beside the file, then the file itself."""
    if config_path is not None:
        found = [Document(shown(config_path.name), read_sidecar(config_path))]
    else:
        found = [Document(beside.name, read_sidecar(beside)) for beside in found_beside(path)]
    arguments = [_plain(stored.description.get(key)) for key in _ARGUMENTS]
    inside = [Document(source, stored.description), *(Document(source, content) for content in arguments if content)]
    # A preprocessor's words (`size`, `channels`) are not a configuration's.
    return [*(d if d.who != PREPROCESSOR else Document(d.who, {"preprocessing": d.content}) for d in found), *inside]


def _plain(value: object) -> Mapping[str, Any]:
    """The settings in a mapping, or in the attributes of an argparse.Namespace."""
    if isinstance(value, Mapping):
        return {str(key): item for key, item in value.items()}
    attributes = getattr(value, "__dict__", None)
    return attributes if isinstance(attributes, dict) else {}
