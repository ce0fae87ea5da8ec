"""The tokenizer that joins a bundle: read, tried, and held against the model's vocabulary."""

from pathlib import Path

from gaussport.errors import ConfigurationError, TextError, UsageError
from gaussport.models.image.preprocess import Preprocessing
from gaussport.models.text import Tokenization, encode

_TRIED = "The quick brown fox, naïve café, 敏捷的棕色狐狸, 1234."


def tokenizer_files(spec: Preprocessing | Tokenization, given: Path | None, checkpoint: Path) -> dict[str, bytes]:
    """The files beside a tokenization, by their names in the bundle: none for bytes or pictures, else the `given` tokenizer
    or the one that the specification names, which lies beside the checkpoint or in its folder.

    Raises:
        UsageError: it is not there, or not readable.
        ConfigurationError: it makes other tokens than the model has.
    """
    if isinstance(spec, Preprocessing) or spec.kind == "bytes":
        return {}
    path = given if given is not None else _beside(checkpoint) / spec.file
    try:
        content = path.read_bytes()
    except OSError as error:
        raise UsageError(
            f"the tokenizer {path} cannot be read: {error.strerror or error}; name another with --tokenizer FILE"
        ) from None
    _try(path, spec)
    return {spec.file: content}


def _beside(checkpoint: Path) -> Path:
    return checkpoint if checkpoint.is_dir() else checkpoint.parent


def _try(path: Path, spec: Tokenization) -> None:
    try:
        tokens = encode(_TRIED, spec.model_copy(update={"file": path.name}), path.parent)
        from tokenizers import Tokenizer
    except TextError as error:
        raise UsageError(f"{path}: {error}") from None
    size = Tokenizer.from_file(str(path)).get_vocab_size(with_added_tokens=True)
    if size > spec.vocabulary or int(tokens.max()) >= spec.vocabulary:
        raise ConfigurationError(
            f"{path.name} makes {size:,} tokens and the model knows {spec.vocabulary:,}: give the tokenizer that it was "
            "trained with"
        )
    if spec.pad in tokens:
        raise ConfigurationError(
            f"{path.name} makes the token {spec.pad} of ordinary text, and that is the model's padding: give the tokenizer "
            "that it was trained with"
        )
