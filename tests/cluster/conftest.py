"""A Ray cluster on this machine alone: a head without room for replicas, two machines with a core and, in name, a GPU."""

import json
import os
import subprocess
import sys
import warnings
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.serving.conftest import encoded, picture, write_tiny

pytest.importorskip("ray", reason="install gaussport[ray] to run a Ray cluster")
with warnings.catch_warnings():
    warnings.simplefilter("ignore")  # of Ray, about itself
    import ray.serve  # noqa: F401

os.environ["RAY_USAGE_STATS_ENABLED"] = "0"
# A machine busy with other tests may need more than Ray's 15 s.
os.environ["RAY_agent_register_timeout_ms"] = "60000"  # noqa: SIM112  # the name is Ray's

WORDS = [sys.executable, "-m", "gaussport"]


class Machines:
    """The cluster: `address` for drivers, `dashboard` for `serve deploy`."""

    def __init__(self) -> None:
        from ray.cluster_utils import Cluster

        self._cluster = Cluster(
            initialize_head=True,
            head_node_args={
                "num_cpus": 0,
                "include_dashboard": True,
                "dashboard_port": 0,
                "object_store_memory": 100_000_000,
            },
        )
        self.address = self._cluster.address
        self.dashboard = f"http://{self._cluster.webui_url}"
        self.workers = [self.add(), self.add()]

    def add(self) -> Any:
        return self._cluster.add_node(num_cpus=1, num_gpus=1, object_store_memory=100_000_000)

    def lose(self, worker: Any) -> None:
        """As if its plug were pulled."""
        self._cluster.remove_node(worker, allow_graceful=False)
        self.workers.remove(worker)

    def close(self) -> None:
        self._cluster.shutdown()  # type: ignore[no-untyped-call]


@pytest.fixture(scope="session")
def machines() -> Iterator[Machines]:
    started = Machines()
    yield started
    started.close()


@pytest.fixture(scope="session")
def bundles(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Path]:
    """Two models of one name: the first is slow, so that requests are on their way whenever something happens."""
    home = tmp_path_factory.mktemp("bundles")
    return write_tiny(home / "one", slow_loops=40), write_tiny(home / "two", seed=1)


@pytest.fixture(scope="session")
def pictures(tmp_path_factory: pytest.TempPathFactory) -> list[Path]:
    folder = tmp_path_factory.mktemp("pictures")
    for seed in range(40):
        (folder / f"{seed:02}.png").write_bytes(encoded(picture(seed)))
    return sorted(folder.iterdir())


def classified(bundle: Path, pictures: list[Path]) -> list[dict[str, float]]:
    """What the bundle says of each picture when nothing stands between: probability by label."""
    done = subprocess.run(
        [*WORDS, "classify", str(bundle), *map(str, pictures), "--json", "--threads", "1"], capture_output=True, check=True
    )
    return [{each["label"]: each["probability"] for each in row["predictions"]} for row in json.loads(done.stdout)]
