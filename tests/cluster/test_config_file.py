"""The file for Ray's `serve deploy`: what is committed is what is printed, Ray takes it, and no secret is in it."""

from pathlib import Path

import pytest
import yaml

from gaussport.cli import main
from gaussport.errors import UsageError

pytest.importorskip("ray", reason="install gaussport[ray] to run a Ray cluster")

from ray.serve.schema import ServeDeploySchema

from gaussport.serving.cluster.application import Wish, build

COMMITTED = Path(__file__).parents[2] / "deploy" / "ray" / "serve.yaml"
OPTIONS = ("--engine", "ray", "--host", "0.0.0.0", "--replicas", "2", "--max-replicas", "8")


def printed(capsys: pytest.CaptureFixture[str], *options: str) -> str:
    assert main(["serve", "/models/mnist-ssog", *options, "--print-ray-config"]) == 0
    return capsys.readouterr().out


def test_the_committed_file_is_what_the_command_prints(capsys: pytest.CaptureFixture[str]) -> None:
    assert COMMITTED.read_text() == printed(capsys, *OPTIONS)
    [application] = ServeDeploySchema(**yaml.safe_load(COMMITTED.read_text())).applications
    assert application.import_path == f"{build.__module__}:{build.__name__}"


def test_settings_go_where_a_change_of_them_costs_least(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("GAUSSPORT_API_KEYS", "secret-secret-secret")
    text = printed(capsys, *OPTIONS, "--replica-gpus", "0.25", "--max-batch", "8", "--provider", "cuda", "--port", "9000")
    assert "secret-secret" not in text
    [application] = yaml.safe_load(text)["applications"]
    assert application["args"]["settings"] == {"max_batch": 8, "provider": "cuda", "replica_gpus": 0.25}
    [deployment] = application["deployments"]
    assert deployment["ray_actor_options"] == {"num_cpus": 1.0, "num_gpus": 0.25}
    assert deployment["autoscaling_config"]["max_replicas"] == 8
    assert yaml.safe_load(text)["http_options"]["port"] == 9000


@pytest.mark.parametrize(
    ("settings", "said"),
    [({"max_bach": 8}, "did you mean max_batch"), ({"max_batch": 0}, "at least 1"), ({"workers": 2}, "--replicas")],
)
def test_a_file_with_a_setting_that_cannot_be_is_told_which(settings: dict[str, int], said: str) -> None:
    with pytest.raises(UsageError, match=said):
        build(Wish(bundles=[Path("/models/mnist-ssog")], settings=settings))
