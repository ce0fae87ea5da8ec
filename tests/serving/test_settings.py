"""A flag wins over the environment, which wins over the default; a value that cannot be is told by its source."""

import argparse

import pytest

from gaussport.errors import UsageError
from gaussport.serving.setting_sources import add_flags, from_arguments
from gaussport.serving.settings import Settings


def parsed(*words: str, **environment: str) -> Settings:
    parser = argparse.ArgumentParser()
    add_flags(parser)
    return from_arguments(parser.parse_args(words), environment)


def test_defaults() -> None:
    assert parsed() == Settings()


def test_a_flag_wins_over_the_environment() -> None:
    settings = parsed("--max-batch", "8", GAUSSPORT_MAX_BATCH="4", GAUSSPORT_PORT="0", GAUSSPORT_MAX_DELAY_MS="1.5")
    assert (settings.max_batch, settings.port, settings.max_delay_ms) == (8, 0, 1.5)


@pytest.mark.parametrize(
    ("words", "environment", "message"),
    [
        (("--max-batch", "0"), {}, "--max-batch is 0: give at least 1"),
        (("--port", "x"), {}, "--port is 'x': give a whole number"),
        (("--max-delay-ms", "nan"), {}, "--max-delay-ms is nan"),
        (("--drain-timeout-s", "inf"), {}, "--drain-timeout-s is inf"),
        ((), {"GAUSSPORT_QUEUE_SIZE": "-3"}, "GAUSSPORT_QUEUE_SIZE is -3"),
        ((), {"GAUSSPORT_MAX_BODY_MB": ""}, "GAUSSPORT_MAX_BODY_MB is ''"),
    ],
)
def test_a_value_that_cannot_be_names_its_source(words: tuple[str, ...], environment: dict[str, str], message: str) -> None:
    with pytest.raises(UsageError, match=message):
        parsed(*words, **environment)


def test_only_the_flags_asked_for_are_added() -> None:
    parser = argparse.ArgumentParser()
    add_flags(parser, "threads")
    assert from_arguments(parser.parse_args(["--threads", "3"]), {}).threads == 3
    with pytest.raises(SystemExit):
        parser.parse_args(["--port", "1"])
