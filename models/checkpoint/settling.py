"""The configuration of a checkpoint, settled field by field: what people state, what shapes tell, and stated defaults.

Two statements of one field that differ are an error with both values; nobody's guess is preferred in silence.
"""

from collections.abc import Mapping, Sequence
from dataclasses import MISSING, dataclass, fields
from typing import Any

from gaussport.errors import ConfigurationError
from gaussport.models.attention import families
from gaussport.models.checkpoint.inference import Fact, Shapes, facts_from, square_image
from gaussport.models.checkpoint.kinds import Config, Kind, kind_of

FLAX_DEFAULTS = {"gelu": "tanh", "norm_epsilon": 1e-6}
"""What Flax does where torch has the exact GELU and 1e-5."""

_HOW = {
    "attention.heads": "no shape tells how many heads there are: give --set heads=N",
    "attention.family": "the parameters of its attention are of no family known here: give --rename 'OLD=NEW', or --model",
    "image_size": "its grid is not square: give --set image_size=[HEIGHT,WIDTH]",
    "patch": "its patches fit no grey or coloured pictures: give --set patch=N and --set channels=N",
}


@dataclass(frozen=True)
class Statement:
    """What somebody says about the configuration, by flat field names, and who."""

    who: str
    values: Mapping[str, Any]


@dataclass(frozen=True)
class Settled:
    """The facts in the order of the configuration's fields, which of them are defaults that stand in, and what is missing
    with the way to give it."""

    kind: Kind
    facts: tuple[Fact, ...]
    assumed: tuple[str, ...]
    missing: Mapping[str, str]

    def config(self, source: str) -> Config:
        """The configuration, whole.

        Raises:
            ConfigurationError: a field is missing, unknown, impossible or of the wrong type; the message names it.
        """
        if self.missing:
            field, how = next(iter(self.missing.items()))
            others = [name for name in self.missing if name != field]
            more = f" ({', '.join(others)} too)" if others else ""
            raise ConfigurationError(
                f"{source} brings no configuration that says {field}{more}, and {how}, or a configuration with --config FILE"
            )
        try:
            return self.kind.config.from_json(_nested({fact.field: fact.value for fact in self.facts}))
        except (TypeError, ValueError, OverflowError) as error:
            raise ConfigurationError(f"the configuration of {source} has a field of the wrong type: {error}") from None


def settle(
    statements: Sequence[Statement],
    shapes: Shapes,
    sizes: Mapping[str, object],
    fallbacks: Sequence[Statement],
    flax: bool,
    source: str,
) -> Settled:
    """The facts about the checkpoint `source`. What `fallbacks` say counts only where nobody else says anything.

    Raises:
        ConfigurationError: two statements differ, or one differs from what the shapes tell.
    """
    kind, stated = kind_of(shapes), _agreed(statements)
    told = facts_from(shapes, sizes)
    for field, fact in stated.items():
        certain = told.get(field)
        open_ = certain is not None and (
            certain.value is None or (fact.value is None and _default(field, told, kind) is None)
        )
        if certain is not None and not open_ and not _same(certain, fact):
            raise ConfigurationError(
                f"{field.removeprefix('attention.')} is {_text(fact.value)} in {fact.origin} but {_text(certain.value)} in "
                f"{source} by {certain.origin}: correct or leave out the wrong one"
            )
    facts = {**told, **stated}
    for fallback in fallbacks:
        known = {field: Fact(field, value, fallback.who) for field, value in fallback.values.items()}
        facts = {**{field: fact for field, fact in known.items() if field in _fields({**known, **facts}, kind)}, **facts}
    _check_family(facts)
    defaults = {**_square(facts, shapes), **_defaults(facts, flax, kind)}
    assumed = [field for field in defaults if field not in facts]
    facts = {**defaults, **facts}
    order = _fields(facts, kind)
    missing = {field: _HOW.get(field, "its parameters do not tell: give --rename 'OLD=NEW' for other names, --model for "
                               "another module") for field in order if field not in facts}  # fmt: skip
    strange = [facts[field] for field in facts if field not in order]
    return Settled(
        kind, (*(facts[f] for f in order if f in facts), *strange), tuple(f for f in order if f in assumed), missing
    )


def _agreed(statements: Sequence[Statement]) -> dict[str, Fact]:
    found: dict[str, Fact] = {}
    for statement in statements:
        for field, value in statement.values.items():
            fact = Fact(field, value, statement.who)
            other = found.setdefault(field, fact)
            if not _same(other, fact):
                raise ConfigurationError(
                    f"{field.removeprefix('attention.')} is {_text(other.value)} in {other.origin} but {_text(value)} in "
                    f"{statement.who}: leave one of them out"
                )
    return found


def _check_family(facts: Mapping[str, Fact]) -> None:
    fact = facts.get("attention.family")
    if fact is not None and fact.value not in list(families()):
        raise ConfigurationError(
            f"attention.family is {fact.value!r} in {fact.origin} but must be one of {', '.join(sorted(families()))}"
        )


def _square(facts: Mapping[str, Fact], shapes: Shapes) -> dict[str, Fact]:
    """image_size as if the grid were square, where it can be."""
    square = square_image(shapes, {field: fact.value for field, fact in facts.items()})
    return {} if square is None else {"image_size": Fact("image_size", square, "default: a square grid")}


def _defaults(facts: Mapping[str, Fact], flax: bool, kind: Kind) -> dict[str, Fact]:
    """A value for every field that has one without being stated."""
    found = {field: Fact(field, default, "default") for field, default in _optional(facts, kind).items()}
    if flax:
        found |= {field: Fact(field, value, "default of Flax") for field, value in FLAX_DEFAULTS.items()}
    return found


def _default(field: str, facts: Mapping[str, Fact], kind: Kind) -> object:
    """What the configuration takes when nobody states the field; None may be a value that other fields decide."""
    return _optional(facts, kind).get(field, MISSING)


def _optional(facts: Mapping[str, Fact], kind: Kind) -> dict[str, Any]:
    """The fields that no shape tells and that have a default; a value that shapes would tell is never guessed."""
    own = dict(kind.defaults)
    family = families().get(str(facts["attention.family"].value)) if "attention.family" in facts else None
    if family is None:
        return own
    in_attention = {f"attention.{f.name}": f.default for f in fields(family.config) if f.default is not MISSING}
    return own | in_attention


def _fields(facts: Mapping[str, Fact], kind: Kind) -> list[str]:
    """Every field that the configuration has, in its order."""
    family = families().get(str(facts["attention.family"].value)) if "attention.family" in facts else None
    in_attention = [f"attention.{f.name}" for f in fields(family.config)] if family else ["attention.heads"]
    return ["attention.family", *in_attention, *kind.fields]


def _nested(flat: Mapping[str, Any]) -> dict[str, Any]:
    document: dict[str, Any] = {"attention": {}}
    for field, value in flat.items():
        if field.startswith("attention."):
            document["attention"][field.removeprefix("attention.")] = value
        else:
            document[field] = value
    return document


def _same(one: Fact, other: Fact) -> bool:
    a, b = (list(v) if isinstance(v, tuple) else v for v in (one.value, other.value))
    if one.field == "mlp_ratio" and isinstance(a, int | float) and isinstance(b, int | float):
        return abs(a - b) < 0.01  # a ratio that was written down with few digits gives the same hidden width, or build says
    return bool(a == b)


def _text(value: object) -> str:
    return str(list(value)) if isinstance(value, tuple) else repr(value) if isinstance(value, str) else str(value)
