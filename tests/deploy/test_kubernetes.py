"""deploy/ is what Kubernetes takes: rendered by kustomize, held against the published schemas and against the server."""

import json
import re
import shutil
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import kubernetes_validate
import pytest
import yaml

from gaussport.cli import main
from gaussport.serving.app import build_app
from gaussport.serving.metrics import Metrics
from gaussport.serving.settings import Settings

DEPLOY = Path(__file__).parents[2] / "deploy"
KUBERNETES = DEPLOY / "kubernetes"
OVERLAYS = ("cpu", "gpu", "hpa")
VERSIONS = ("1.30", "1.33")  # the oldest that somebody still has, and a newer one
DOCKERFILE = (DEPLOY.parent / "docker" / "Dockerfile").read_text()

KUSTOMIZE = [["kubectl", "kustomize"], ["kustomize", "build"]]


def rendered(folder: Path) -> list[dict[str, Any]]:
    command = next((words for words in KUSTOMIZE if shutil.which(words[0])), None)
    if command is None:
        pytest.skip("neither kubectl nor kustomize is installed")
    answer = subprocess.run([*command, str(folder)], capture_output=True, text=True)
    assert answer.returncode == 0, answer.stderr
    return list(yaml.safe_load_all(answer.stdout))


@pytest.fixture(scope="module")
def overlays() -> dict[str, dict[str, dict[str, Any]]]:
    return {name: {each["kind"]: each for each in rendered(KUBERNETES / "overlays" / name)} for name in OVERLAYS}


def container(documents: dict[str, dict[str, Any]]) -> dict[str, Any]:
    found: dict[str, Any] = documents["Deployment"]["spec"]["template"]["spec"]["containers"][0]
    return found


@pytest.mark.parametrize("name", OVERLAYS)
@pytest.mark.parametrize("version", VERSIONS)
def test_overlays_hold_against_the_schemas(overlays: dict[str, dict[str, dict[str, Any]]], name: str, version: str) -> None:
    for document in overlays[name].values():
        kubernetes_validate.validate(document, version, strict=True)
    assert {"Deployment", "Service", "PodDisruptionBudget", "NetworkPolicy", "ConfigMap"} <= set(overlays[name])


def test_the_schemas_refuse_what_is_wrong(overlays: dict[str, dict[str, dict[str, Any]]]) -> None:
    broken = json.loads(json.dumps(overlays["cpu"]["Deployment"]))
    broken["spec"]["template"]["spec"]["containers"][0]["readinesProbe"] = {}
    with pytest.raises(kubernetes_validate.ValidationError):
        kubernetes_validate.validate(broken, VERSIONS[-1], strict=True)


@pytest.mark.parametrize("name", ["bundle-volume", "bundle-image"])
def test_components_give_the_pod_a_bundle(name: str, tmp_path: Path) -> None:
    tree = Path(shutil.copytree(KUBERNETES, tmp_path / "kubernetes"))
    with (tree / "overlays" / "cpu" / "kustomization.yaml").open("a") as file:
        file.write(f"\ncomponents: [../../components/{name}]\n")
    documents = rendered(tree / "overlays" / "cpu")
    for document in documents:
        kubernetes_validate.validate(document, VERSIONS[-1], strict=True)
    pod = next(each for each in documents if each["kind"] == "Deployment")["spec"]["template"]["spec"]
    mounts = {mount["mountPath"]: mount for mount in pod["containers"][0]["volumeMounts"]}
    assert {mount["name"] for mount in mounts.values()} == {volume["name"] for volume in pod["volumes"]}
    assert mounts[pod["containers"][0].get("args", ["/bundle"])[0]]["readOnly"]


def probes() -> Iterator[tuple[str, str]]:
    """Every probe of the manifests: its kind and its path."""
    for file in ("kubernetes/base/deployment.yaml", "kserve/inferenceservice.yaml"):
        yield from re.findall(r"(\w+)Probe:\n\s+httpGet: \{ path: (\S+),", (DEPLOY / file).read_text())


def test_probes_ask_for_routes_that_exist(bundle: Path) -> None:
    asked = list(probes())
    assert len(asked) == 5
    paths = build_app([bundle], Settings()).openapi()["paths"]
    for kind, path in asked:
        assert "get" in paths[path]
        assert path.endswith("/live" if kind == "liveness" else "/ready")


@pytest.mark.parametrize("name", OVERLAYS)
def test_settings_of_the_config_map_are_settings(
    overlays: dict[str, dict[str, dict[str, Any]]],
    name: str,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    for key, value in overlays[name]["ConfigMap"]["data"].items():
        assert key.startswith("GAUSSPORT_")
        monkeypatch.setenv(key, value)
    assert main(["serve", "--print-settings"]) == 0
    printed = capsys.readouterr().out
    for key in overlays[name]["ConfigMap"]["data"]:
        assert re.search(rf"^{key.removeprefix('GAUSSPORT_').lower()} = .*GAUSSPORT", printed, re.MULTILINE)


@pytest.mark.parametrize("name", OVERLAYS)
def test_pods_have_time_to_drain_and_are_confined(overlays: dict[str, dict[str, dict[str, Any]]], name: str) -> None:
    pod = overlays[name]["Deployment"]["spec"]["template"]["spec"]
    settings = overlays[name]["ConfigMap"]["data"]
    needed = float(settings["GAUSSPORT_DRAIN_DELAY_S"]) + float(settings["GAUSSPORT_DRAIN_TIMEOUT_S"])
    assert pod["terminationGracePeriodSeconds"] > needed
    assert not pod["automountServiceAccountToken"]
    assert f"USER {pod['securityContext']['runAsUser']}:{pod['securityContext']['runAsGroup']}" in DOCKERFILE
    confined = container(overlays[name])["securityContext"]
    assert confined["readOnlyRootFilesystem"]
    assert confined["capabilities"] == {"drop": ["ALL"]}
    assert not confined["allowPrivilegeEscalation"]
    assert {mount["mountPath"] for mount in container(overlays[name])["volumeMounts"]} == {"/tmp"}


def test_a_service_of_our_name_does_not_set_the_port(overlays: dict[str, dict[str, dict[str, Any]]]) -> None:
    """Kubernetes gives pods GAUSSPORT_PORT=tcp://… for a Service called gaussport, unless told not to."""
    for documents in overlays.values():
        assert documents["Service"]["metadata"]["name"] == "gaussport"
        assert documents["Deployment"]["spec"]["template"]["spec"]["enableServiceLinks"] is False


def test_selectors_find_the_pods(overlays: dict[str, dict[str, dict[str, Any]]]) -> None:
    for documents in overlays.values():
        labels = documents["Deployment"]["spec"]["template"]["metadata"]["labels"]
        for selector in (
            documents["Deployment"]["spec"]["selector"]["matchLabels"],
            documents["Service"]["spec"]["selector"],
            documents["PodDisruptionBudget"]["spec"]["selector"]["matchLabels"],
            documents["NetworkPolicy"]["spec"]["podSelector"]["matchLabels"],
        ):
            assert selector
            assert selector.items() <= labels.items()
        assert f"EXPOSE {container(documents)['ports'][0]['containerPort']}" in DOCKERFILE


def test_the_gpu_overlay_asks_for_a_gpu_and_never_for_a_cpu_provider(overlays: dict[str, dict[str, dict[str, Any]]]) -> None:
    assert container(overlays["gpu"])["resources"]["limits"]["nvidia.com/gpu"] == "1"
    assert overlays["gpu"]["ConfigMap"]["data"]["GAUSSPORT_PROVIDER"] == "tensorrt"


def test_the_autoscaler_follows_a_series_of_ours_and_owns_the_replicas(
    overlays: dict[str, dict[str, dict[str, Any]]],
) -> None:
    scaler = overlays["hpa"]["HorizontalPodAutoscaler"]["spec"]
    followed = scaler["metrics"][0]["pods"]["metric"]["name"]
    metrics = Metrics()
    metrics.model("name", "1", "cpu").held(1)
    assert f"\n{followed}{{" in metrics.text().decode()
    rules = yaml.safe_load((KUBERNETES / "prometheus-adapter.yaml").read_text())["rules"]["custom"]
    assert [rule["seriesQuery"].partition("{")[0] for rule in rules] == [followed]
    assert "replicas" not in overlays["hpa"]["Deployment"]["spec"]
    assert scaler["scaleTargetRef"]["name"] == overlays["hpa"]["Deployment"]["metadata"]["name"]


def test_kserve_predictor_is_a_valid_pod() -> None:
    service = yaml.safe_load((DEPLOY / "kserve" / "inferenceservice.yaml").read_text())
    predictor = service["spec"]["predictor"]
    of_kserve = {"minReplicas", "maxReplicas", "scaleMetric", "scaleTarget", "timeout"}
    spec = {key: value for key, value in predictor.items() if key not in of_kserve}
    pod = {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "predictor"}, "spec": spec}
    kubernetes_validate.validate(pod, VERSIONS[-1], strict=True)
    first = spec["containers"][0]
    assert first["name"] == "kserve-container"
    port = next(each["value"] for each in first["env"] if each["name"] == "GAUSSPORT_PORT")
    assert {int(port)} == {each["containerPort"] for each in first["ports"]} | {first["readinessProbe"]["httpGet"]["port"]}
