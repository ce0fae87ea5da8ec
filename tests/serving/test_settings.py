"""A flag wins over the environment, which wins over the default; a value that cannot be is told by its source."""

import argparse
from pathlib import Path

import pytest

from gaussport import cli
from gaussport.errors import UsageError
from gaussport.serving.setting_sources import add_flags, from_arguments, read
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
        (
            (),
            {"GAUSSPORT_PORT": "tcp://10.0.0.1:8000"},
            "Kubernetes sets for a Service called gaussport: .*enableServiceLinks",
        ),
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


def test_every_source_is_named_and_the_text_is_read_back(tmp_path: Path) -> None:
    file = tmp_path / "server.toml"
    file.write_text('max_batch = 4\nport = 7000\ncors-origins = ["https://a.example", "*"]\nallow_load = true\n')
    parser = argparse.ArgumentParser()
    parser.add_argument("--config")
    add_flags(parser)
    words = ["--port", "1", "--tls-cert", 'a "quoted" \\ path']
    environment = {
        "GAUSSPORT_CONFIG": str(file),
        "GAUSSPORT_MAX_DELAY_MS": "0.5",
        "GAUSSPORT_API_KEYS": "secret-secret-secret",
    }
    sourced = read(parser.parse_args(words), environment)
    assert sourced.settings == Settings(
        port=1,
        max_batch=4,
        max_delay_ms=0.5,
        cors_origins=("https://a.example", "*"),
        allow_load=True,
        tls_cert=Path('a "quoted" \\ path'),
        api_keys=("secret-secret-secret",),
    )
    text = sourced.text()
    for line in (
        "port = 1  # --port",
        "max_delay_ms = 0.5  # GAUSSPORT_MAX_DELAY_MS",
        f"max_batch = 4  # max_batch in {file}",
        "queue_size = 256  # default",
        "# api_keys = ********  # GAUSSPORT_API_KEYS",
    ):
        assert line in text.splitlines()
    assert "secret-secret" not in text
    file.write_text(text)
    again = read(parser.parse_args([]), {key: environment[key] for key in ("GAUSSPORT_CONFIG", "GAUSSPORT_API_KEYS")})
    assert again.settings == sourced.settings
    assert again.text().splitlines() != text.splitlines()  # other sources


@pytest.mark.parametrize(
    ("content", "message"),
    [
        ("max_bacth = 1", "sets max_bacth, which is no setting: did you mean max_batch"),
        ("max_batch = ", "is not TOML"),
        ("max_batch = 0", "max_batch in .* is 0: give at least 1"),
        ("max_batch = 1.5", "give a whole number"),
        ("allow_load = 3", "give true or false"),
        ("cors_origins = [1]", "list of texts"),
        ("[tls]", "sets tls, which is no setting"),
        ("log_format = 'xml'", "give one of text, json"),
        ("host = ''", "is empty"),
    ],
)
def test_a_file_that_cannot_be_is_told_by_its_line(tmp_path: Path, content: str, message: str) -> None:
    file = tmp_path / "server.toml"
    file.write_text(content)
    with pytest.raises(UsageError, match=message):
        read(argparse.Namespace(config=str(file)), {})


def test_print_settings_needs_no_bundle(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("GAUSSPORT_API_KEYS", "secret-secret-secret")
    assert cli.main(["serve", "--print-settings", "--max-batch", "3"]) == 0
    shown = capsys.readouterr()
    assert "max_batch = 3  # --max-batch" in shown.out
    assert "secret-secret" not in shown.out + shown.err
    assert cli.main(["serve"]) == 2
