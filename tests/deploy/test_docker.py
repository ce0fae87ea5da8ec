"""The files of docker/ are what Docker, Compose, Prometheus and Grafana take, and agree with the server and with pyproject.

The image itself is built and proved by `make image-test`, which needs root and buildah.
"""

import importlib.util
import json
import re
import subprocess
import sys
import tomllib
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest
import yaml
from compose_spec import PyCompose
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name
from prometheus_client.parser import text_string_to_metric_families

from gaussport.serving.metrics import Metrics
from gaussport.serving.settings import Settings

ROOT = Path(__file__).parents[2]
DOCKER = ROOT / "docker"
LOCKS = sorted(DOCKER.glob("requirements-*.txt"))


def load(path: Path) -> ModuleType:
    spec = importlib.util.spec_from_file_location(path.stem, path)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def locked(lock: Path) -> dict[str, list[Requirement]]:
    """The requirements of a lock file by name, after a look at each one's hashes."""
    found: dict[str, list[Requirement]] = {}
    for block in re.split(r"\n(?=\S)", lock.read_text().strip()):
        line, *hashes = block.replace("\\\n", "\n").splitlines()
        assert hashes, f"{line} has no hash"
        assert all(re.fullmatch(r"--hash=sha256:[0-9a-f]{64}", each.strip()) for each in hashes)
        requirement = Requirement(line)
        assert re.fullmatch(r"==[^*]+", str(requirement.specifier)), f"{line} is not pinned"
        found.setdefault(canonicalize_name(requirement.name), []).append(requirement)
    return found


def wanted(extra: str) -> dict[str, Requirement]:
    """What pyproject asks for, with the extras of our own that an extra names."""
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    words = [*project["dependencies"], *project["optional-dependencies"][extra]]
    requirements: dict[str, Requirement] = {}
    while words:
        requirement = Requirement(words.pop())
        if requirement.name == "gaussport":
            words += [word for each in requirement.extras for word in project["optional-dependencies"][each]]
        else:
            requirements[canonicalize_name(requirement.name)] = requirement
    return requirements


def test_hadolint_finds_nothing() -> None:
    answer = subprocess.run([Path(sys.prefix) / "bin" / "hadolint", DOCKER / "Dockerfile"], capture_output=True, text=True)
    assert (answer.returncode, answer.stdout) == (0, "")


@pytest.mark.parametrize(("extra", "locks"), [("serve", ["cpu"]), ("gpu", ["gpu", "tensorrt"])])
def test_locks_satisfy_pyproject(extra: str, locks: list[str]) -> None:
    pins = {key: each for lock in locks for key, each in locked(DOCKER / f"requirements-{lock}.txt").items()}
    asked = wanted(extra)
    if "tensorrt" in locks:
        asked["tensorrt-cu13-libs"] = asked.pop("tensorrt-cu13")  # the server needs the libraries alone
    for name, requirement in asked.items():
        assert name in pins, f"{name} is not locked: run make lock"
        for pin in pins[name]:
            version = str(pin.specifier).removeprefix("==")
            assert requirement.specifier.contains(version, prereleases=True), f"{pin} is not {requirement}: run make lock"


def test_no_lock_has_torch_or_a_place() -> None:
    for lock in LOCKS:
        assert not {"torch", "onnx", "triton", "gaussport"} & set(locked(lock))
        assert "://" not in lock.read_text()


def test_the_context_holds_all_that_the_dockerfile_copies() -> None:
    text = (DOCKER / "Dockerfile").read_text()
    copied = {
        source.split("/")[0]
        for line in re.findall(r"^COPY (?!--from)(.+)$", text, re.MULTILINE)
        for source in line.split()[:-1]
        if not source.startswith("$")
    }
    allowed = {line[1:] for line in (ROOT / ".dockerignore").read_text().splitlines() if line.startswith("!")}
    assert copied <= allowed
    assert all((ROOT / name).exists() for name in copied)
    assert {link.name for link in (ROOT / "src" / "gaussport").iterdir() if link.is_symlink()} <= allowed


def test_environment_of_the_image_is_settings_that_exist() -> None:
    named = re.findall(r"GAUSSPORT_([A-Z_]+)=", (DOCKER / "Dockerfile").read_text())
    named += re.findall(r"GAUSSPORT_([A-Z_]+):", (DOCKER / "compose.yaml").read_text())
    assert named
    assert {name.lower() for name in named} <= set(Settings.__dataclass_fields__)


def composed() -> dict[str, Any]:
    """The compose file with its anchors merged and its variables filled in, as `docker compose config` would."""
    document = yaml.safe_load((DOCKER / "compose.yaml").read_text())
    plain = json.dumps({key: value for key, value in document.items() if not key.startswith("x-")})
    filled: dict[str, Any] = json.loads(
        re.sub(r"\$\{\w+(:[-?])([^}]*)\}", lambda found: found[2] if found[1] == ":-" else "/b", plain)
    )
    return filled


def test_compose_file_is_valid_and_confined() -> None:
    document = composed()
    PyCompose.from_json(json.dumps(document)).validate()
    for name in ("cpu", "gpu"):
        service = document["services"][name]
        assert service["read_only"]
        assert service["cap_drop"] == ["ALL"]
        assert service["profiles"] == [name]
        assert int(service["stop_grace_period"].removesuffix("s")) > Settings().drain_timeout_s
    assert all(volume.startswith(("./", "/b", *document["volumes"])) for volume in volumes(document))
    for source in (volume.split(":")[0] for volume in volumes(document)):
        assert not source.startswith("./") or (DOCKER / source).is_dir()


def volumes(document: dict[str, Any]) -> list[str]:
    return [volume for service in document["services"].values() for volume in service.get("volumes", [])]


def expressions() -> list[str]:
    """Every query of the dashboard and of the alerts."""
    board = json.loads((DOCKER / "grafana" / "dashboards" / "gaussport.json").read_text())
    rules = yaml.safe_load((DOCKER / "prometheus" / "alerts.yml").read_text())
    queries = [target["expr"] for panel in board["panels"] for target in panel["targets"]]
    return queries + [rule["expr"] for group in rules["groups"] for rule in group["rules"]]


def test_dashboard_and_alerts_ask_for_series_that_exist() -> None:
    metrics = Metrics()
    metrics.request("/v1/classify", "POST", 200, 0.1, "queue_full")
    series = metrics.model("name", "1", "cpu")
    series.queue_seconds.observe(0.1)
    series.held(1)
    series.batch(1, 0.1)
    for labels, counter in ((("name", "ok"), metrics.images), (("failed",), metrics.loads)):
        counter.labels(*labels).inc()
    samples = [s for family in text_string_to_metric_families(metrics.text().decode()) for s in family.samples]
    labels_of: dict[str, set[str]] = {}
    for sample in samples:
        labels_of.setdefault(sample.name, set()).update(sample.labels)
    asked = [found for text in expressions() for found in re.findall(r"((?:gaussport|process)_\w+)(?:\{([^}]*)\})?", text)]
    assert len(asked) > 20
    for name, selector in asked:
        assert name in labels_of, f"nothing is called {name}"
        assert set(re.findall(r"(\w+)=~?\"", selector)) <= labels_of[name], f"{name} has no such label: {selector}"


def test_dashboard_panels_have_names_and_ids_of_their_own() -> None:
    panels = json.loads((DOCKER / "grafana" / "dashboards" / "gaussport.json").read_text())["panels"]
    assert len({panel["id"] for panel in panels}) == len({panel["title"] for panel in panels}) == len(panels)
    source = yaml.safe_load((DOCKER / "grafana/provisioning/datasources/prometheus.yml").read_text())["datasources"][0]
    assert {panel["datasource"]["uid"] for panel in panels} == {source["uid"]}


def test_bill_of_materials_lists_wheels_and_debian_packages(tmp_path: Path) -> None:
    status = tmp_path / "status"
    status.write_text(
        "Package: libc6\nStatus: install ok installed\nArchitecture: amd64\nVersion: 2.36-9+deb12u1\nDescription: C\n a: b\n"
        "\nPackage: gone\nStatus: deinstall ok config-files\nArchitecture: amd64\nVersion: 1\n"
    )
    words: list[str | Path] = [sys.executable, DOCKER / "sbom.py", ROOT / "src" / "gaussport" / "__init__.py", status]
    bill = json.loads(subprocess.run(words, capture_output=True, text=True, check=True).stdout)
    purls = [component["purl"] for component in bill["components"]]
    assert "pkg:deb/debian/libc6@2.36-9%2Bdeb12u1?arch=amd64&distro=bookworm" in purls
    assert not [purl for purl in purls if "gone" in purl]
    assert {purl.split("@")[0] for purl in purls} >= {"pkg:pypi/onnxruntime", "pkg:pypi/prometheus-client"}
    assert len(set(purls)) == len(purls)


def test_health_check_fails_without_a_server(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    for port in ("1", "none"):
        monkeypatch.setenv("GAUSSPORT_PORT", port)
        assert load(DOCKER / "healthcheck.py").main() == 1
        assert capsys.readouterr().err.startswith("not ready: ")
