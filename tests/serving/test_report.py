"""The table and the progress bar: shown to people, silent for machines, and never in the way of the rows."""

import io
import sys
from pathlib import Path

import pytest

from gaussport.serving.report import Row, pictures_in, show, with_progress


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


@pytest.fixture
def impatient(monkeypatch: pytest.MonkeyPatch) -> None:
    """Every wait counts as long."""
    monkeypatch.setattr("gaussport.serving.report._PATIENCE_S", -1.0)


ROWS = [Row(f"{index}.png") for index in range(4)]


@pytest.mark.usefixtures("impatient")
def test_a_long_wait_on_a_terminal_has_a_bar(monkeypatch: pytest.MonkeyPatch) -> None:
    terminal = Terminal()
    monkeypatch.setattr(sys, "stderr", terminal)
    assert list(with_progress(ROWS, 4)) == ROWS
    assert "classifying" in terminal.getvalue()


@pytest.mark.usefixtures("impatient")
def test_a_script_sees_no_bar(monkeypatch: pytest.MonkeyPatch) -> None:
    pipe = io.StringIO()
    monkeypatch.setattr(sys, "stderr", pipe)
    assert list(with_progress(ROWS, 4)) == ROWS
    assert pipe.getvalue() == ""


def test_markup_in_names_and_labels_is_text(capsys: pytest.CaptureFixture[str]) -> None:
    predictions = [{"label": "[red]cat[/red]", "index": 0, "probability": 1.0}]
    assert show([Row("[bold]a.png", predictions), Row("b[/].png", error="it is [broken]", code="image_damaged")], False) == 1
    shown = capsys.readouterr().out
    for text in ("[bold]a.png", "[red]cat[/red]", "b[/].png", "it is [broken]"):
        assert text in shown


def test_folders_give_their_files_by_name(tmp_path: Path) -> None:
    for name in ("b.png", "a.png", ".hidden", "sub/c.png"):
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).touch()
    assert [path.name for path in pictures_in([tmp_path, Path("given")])] == ["a.png", "b.png", "c.png", "given"]
