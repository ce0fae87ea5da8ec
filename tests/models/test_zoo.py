"""The shipped classifiers are what their cards say."""

import re

import pytest

from gaussport.errors import UsageError
from gaussport.models import zoo
from gaussport.models.checkpoint import build_classifier, read_checkpoint
from gaussport.models.data import data_set
from gaussport.models.training import accuracy, pixel_tensors

NAMES = ("mnist-dot", "mnist-gma", "mnist-ssog")
SEQUENCES = ("manpages-gma",)  # under test in tests/sequence
LIMIT_BYTES = 2_000_000


def card(name: str) -> dict[str, str]:
    """The rows of the card's table, by their first column."""
    rows = re.findall(
        r"^\| ([^|]+?) \| ([^|]+?) \|$", zoo.path(name).with_suffix(".md").read_text(encoding="utf-8"), re.MULTILINE
    )
    return {key.lower(): value for key, value in rows}


def test_the_zoo_holds_these() -> None:
    assert tuple(zoo.names()) == (*SEQUENCES, *NAMES)


@pytest.mark.parametrize("name", NAMES)
def test_a_classifier_reaches_its_cards_accuracy_on_the_held_out_digits(name: str) -> None:
    checkpoint = read_checkpoint(zoo.path(name))
    classifier = build_classifier(checkpoint)
    _, held_out, spec = pixel_tensors(data_set("mnist"), checkpoint.config)
    assert spec == checkpoint.preprocessing
    reached = accuracy(classifier, held_out, spec)
    assert reached == checkpoint.metrics["held_out_accuracy"]
    assert card(name)["held-out accuracy"] == f"{reached:.1%} ({round(1000 * reached)} of 1,000)"


@pytest.mark.parametrize("name", NAMES)
def test_a_card_gives_the_parameter_count_and_the_licence(name: str) -> None:
    parameters = sum(tensor.numel() for tensor in read_checkpoint(zoo.path(name)).state_dict.values())
    assert card(name)["parameters"] == f"{parameters:,}"
    assert card(name)["licence"].startswith("Apache-2.0")


@pytest.mark.parametrize("name", NAMES)
def test_a_classifier_is_small_and_labelled(name: str) -> None:
    assert zoo.path(name).stat().st_size < LIMIT_BYTES
    assert read_checkpoint(zoo.path(name)).labels == tuple("0123456789")


def test_an_unknown_name_is_refused() -> None:
    with pytest.raises(UsageError, match=r"the zoo has no 'mnist'; choose one of manpages-gma, mnist-dot, "):
        zoo.path("mnist")
