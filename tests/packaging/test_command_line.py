"""What holds for every command's options, whatever they are."""

import argparse
from pathlib import Path

import pytest

from gaussport.cli import COMMANDS, _parser


def options(command: str) -> list[argparse.Action]:
    """The options and arguments of one command."""
    parser = _parser(named=command)
    (subparsers,) = (action for action in parser._actions if isinstance(action, argparse._SubParsersAction))
    actions: list[argparse.Action] = subparsers.choices[command]._actions
    return actions


def test_most_commands_take_paths() -> None:
    assert sum(any(action.type is Path for action in options(command)) for command in COMMANDS) >= 12


@pytest.mark.parametrize("command", COMMANDS)
def test_an_empty_path_is_refused_by_every_option(command: str, capsys: pytest.CaptureFixture[str]) -> None:
    before: list[str] = []
    for action in options(command):
        words = [action.option_strings[-1], ""] if action.option_strings else [*before, ""]
        before += [] if action.option_strings else ["something"]
        if action.type is not Path:
            continue
        with pytest.raises(SystemExit) as caught:
            _parser(named=command).parse_args([command, *words])
        assert caught.value.code == 2
        assert "the path is empty: give the path of a file or a folder" in capsys.readouterr().err
