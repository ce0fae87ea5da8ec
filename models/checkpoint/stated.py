"""What documents of many kinds state about a classifier: our own configuration, and the words that others use for it."""

from collections.abc import Mapping
from dataclasses import fields
from typing import Any

from gaussport.errors import ConfigurationError, UsageError
from gaussport.models.attention import families
from gaussport.models.checkpoint.kinds import KINDS, Kind
from gaussport.models.checkpoint.settling import Statement

_OTHER_WORDS = {
    "classes": ("num_classes", "n_classes", "nb_classes", "num_labels"),
    "dim": ("embed_dim", "hidden_size", "d_model"),
    "depth": ("num_layers", "n_layers", "num_hidden_layers"),
    "image_size": ("img_size",),
    "patch": ("patch_size",),
    "channels": ("in_chans", "in_channels", "num_channels"),
    "vocabulary": ("vocab_size",),
    "pad": ("pad_token_id",),
    "gelu": ("hidden_act", "activation"),
    "norm_epsilon": ("norm_eps", "layer_norm_eps", "layer_norm_epsilon"),
    "attention.family": ("family", "attention_family", "attention_type"),
    "attention.heads": ("num_heads", "n_heads", "num_attention_heads"),
    "attention.atoms": ("num_atoms", "n_atoms"),
    "attention.components": ("num_components", "n_components"),
}
_GELU = {"gelu": "exact", "gelu_new": "tanh", "gelu_tanh": "tanh", "gelu_pytorch_tanh": "tanh", "gelu_fast": "tanh"}
_LABELS = ("labels", "label_names", "class_names", "classes", "id2label", "class_to_idx")


def statement_of(document: Mapping[str, Any], who: str, *kinds: Kind) -> Statement:
    """What a configuration states. In one of ours every word counts; of another's, those that are known of these kinds.

    Raises:
        ConfigurationError: its attention is not an object.
    """
    if "attention" in document and not isinstance(document["attention"], str):
        attention = document["attention"]
        if not isinstance(attention, Mapping):
            raise ConfigurationError(
                f"attention is {attention!r} in {who} but must be an object whose family is one of {', '.join(families())}"
            )
        flat = {f"attention.{name}": value for name, value in attention.items()}
        flat |= {name: value for name, value in document.items() if name != "attention"}
        return Statement(who, {name: _value(name, value) for name, value in flat.items()})
    words = {word: name for word, name in field_words(*kinds).items() if word != "epsilon"}  # an optimiser's, elsewhere
    known = {words[name]: _value(words[name], value) for name, value in document.items() if name in words}
    if isinstance(document.get("attention"), str):
        known["attention.family"] = document["attention"]
    return Statement(who, {name: value for name, value in known.items() if _is_plain(name, value)})


def settings_statement(settings: Mapping[str, Any]) -> Statement:
    """What `--set FIELD=VALUE` states.

    Raises:
        UsageError: there is no such field.
    """
    words = field_words()
    for name in settings:
        if name not in words:
            raise UsageError(f"--set {name}: the configuration has no such field, it has {', '.join(own_fields())}")
    return Statement("--set", {words[name]: _value(words[name], value) for name, value in settings.items()})


def own_fields() -> list[str]:
    """Every field that a configuration may have, by its shortest name."""
    return [name.removeprefix("attention.") for name in _flat_fields()]


def field_words(*kinds: Kind) -> dict[str, str]:
    """The flat field for every word that stands for one, in these kinds of configuration or in any."""
    own = _flat_fields(*kinds)
    words = {name: name for name in own}
    words |= {name.removeprefix("attention."): name for name in own}
    words |= {other: name for name, others in _OTHER_WORDS.items() if name in own for other in others}
    return words


def labels_of(document: Mapping[str, Any]) -> Any:
    """The class labels that a document states in one of the usual forms, by the head's rows; None when it states none."""
    for key in _LABELS:
        value = document.get(key)
        if key == "labels" and value is not None and not isinstance(value, list | tuple | Mapping):
            return value  # no list of names: whoever reads it says so
        if key == "class_to_idx" and isinstance(value, Mapping):
            value = {index: name for name, index in value.items()}
        if isinstance(value, Mapping):
            try:
                value = [value[index] for index in sorted(value, key=int)]
            except (TypeError, ValueError):
                if key == "labels":
                    return value
                continue
        if isinstance(value, list | tuple) and value:
            names = list(value)
            # What Hugging Face writes when nobody named the classes.
            return None if names == [f"LABEL_{index}" for index in range(len(names))] else names
    return None


def _flat_fields(*kinds: Kind) -> list[str]:
    inside = dict.fromkeys(f"attention.{f.name}" for family in families().values() for f in fields(family.config))
    outside = dict.fromkeys(name for kind in kinds or KINDS for name in kind.fields)
    return ["attention.family", *inside, *outside]


def _value(field: str, value: Any) -> Any:
    if field == "image_size":
        if isinstance(value, str) and value.replace("x", "").isdigit() and value.count("x") < 2:
            value = [int(side) for side in value.split("x")] if "x" in value else int(value)
        return [value, value] if type(value) is int else list(value) if isinstance(value, tuple) else value
    if field == "patch" and isinstance(value, list | tuple) and len(set(value)) == 1:
        return value[0]
    return _GELU.get(value, value) if field == "gelu" and isinstance(value, str) else value


def _is_plain(field: str, value: Any) -> bool:
    """Whether another's word can mean this field: `classes` may be a list of names, `activation` another function."""
    if field == "gelu":
        return value in ("exact", "tanh")
    if field == "attention.family":
        return value in families()
    return isinstance(value, int | float | bool) or (field == "image_size" and isinstance(value, list) and len(value) == 2)
