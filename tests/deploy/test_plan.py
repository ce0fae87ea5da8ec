"""`gaussport plan`: the least number of replicas that carries the load, and no plan for a promise that was never kept."""

import json
import math
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gaussport.cli import main
from gaussport.errors import ServingError
from gaussport.serving import job_planning
from gaussport.serving.job_planning import plan_job
from gaussport.serving.planning import Measured, Step, plan

STEPS = (Step(clients=1, rps=100, p99_ms=12), Step(clients=4, rps=250, p99_ms=20), Step(clients=16, rps=300, p99_ms=90))
MEASURED = Measured(model="tiny", cores=2, steps=STEPS)


def test_the_busiest_step_that_keeps_the_promise_is_taken() -> None:
    assert plan(MEASURED, 500, 20, headroom=0, spare=0).replicas == 2
    assert plan(MEASURED, 500, 19, headroom=0, spare=0).replicas == 5
    assert plan(MEASURED, 501, 20, headroom=0, spare=1).replicas == 4
    assert plan(MEASURED, 500, 100, headroom=0.5, spare=0).replicas == math.ceil(500 / 150)


steps = st.lists(
    st.builds(Step, clients=st.integers(1, 64), rps=st.floats(0.1, 1e4), p99_ms=st.floats(0.1, 1e4)), min_size=1, max_size=6
)


@given(steps, st.floats(0.1, 1e5), st.floats(0.1, 1e4), st.floats(0, 0.9), st.integers(0, 3))
def test_a_plan_carries_its_load_and_one_replica_less_would_not(
    measured: list[Step], rps: float, p99_ms: float, headroom: float, spare: int
) -> None:
    subject = Measured(model="m", cores=1, steps=tuple(measured))
    if all(step.p99_ms > p99_ms for step in measured):
        with pytest.raises(ServingError):
            plan(subject, rps, p99_ms, headroom, spare)
        return
    found = plan(subject, rps, p99_ms, headroom, spare)
    each = max(step.rps for step in measured if step.p99_ms <= p99_ms) * (1 - headroom)
    needed = found.replicas - spare
    assert needed * each >= rps * (1 - 1e-9)
    assert (needed - 1) * each < rps
    assert found.step.p99_ms <= p99_ms


def test_command_answers_people_and_machines(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    file = tmp_path / "measured.json"
    file.write_text(MEASURED.model_dump_json())
    words = ["plan", str(file), "--target-rps", "500", "--p99-ms", "20"]
    assert main(words) == 0
    assert capsys.readouterr().out.startswith("4 replicas of tiny with 2 cores each, 1 of them spare\n")
    assert main([*words, "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["replicas"] == 4


@pytest.mark.parametrize(
    ("content", "words", "code", "said"),
    [
        (None, [], 1, "cannot be read"),
        ("{", [], 1, "is no measurement"),
        ('{"model": "m", "cores": 1, "steps": []}', [], 1, "steps"),
        ('{"model": "m", "cores": 1, "steps": [{"clients": 1, "rps": 0, "p99_ms": 1}]}', [], 1, "steps.0.rps"),
        (MEASURED.model_dump_json(), ["--images", "5"], 2, "or a job by --images"),
        (MEASURED.model_dump_json(), ["--p99-ms", "5"], 1, "the quickest took 12 ms"),
        (MEASURED.model_dump_json(), ["--target-rps", "nan"], 2, "give a number above 0"),
        (MEASURED.model_dump_json(), ["--target-rps", "inf"], 2, "give a number above 0"),
        (MEASURED.model_dump_json(), ["--headroom", "1"], 2, "below 1"),
        (MEASURED.model_dump_json(), ["--spare", "-1"], 2, "cannot be"),
    ],
)
def test_what_cannot_be_planned_is_one_sentence(
    content: str | None, words: list[str], code: int, said: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    file = tmp_path / "measured.json"
    if content is not None:
        file.write_text(content)
    assert main(["plan", str(file), "--target-rps", "500", "--p99-ms", "50", *words]) == code
    errors = capsys.readouterr().err
    assert said in errors
    assert len(errors.splitlines()) == 1


JOB = job_planning.Measured(model="tiny", cores=2, classified=5000, seconds=20)


@given(
    st.integers(1, 10**6), st.floats(0.1, 1e5), st.integers(1, 10**9), st.none() | st.floats(1e-3, 1e3), st.floats(0, 0.9)
)
def test_a_job_is_done_in_time_and_one_machine_less_would_not_do(
    classified: int, seconds: float, images: int, within_h: float | None, headroom: float
) -> None:
    measured = job_planning.Measured(model="m", cores=1, classified=classified, seconds=seconds)
    found = plan_job(measured, images, within_h, headroom)
    counted_on = classified / seconds * (1 - headroom)
    assert found.seconds == pytest.approx(images / counted_on / found.machines)
    if within_h is not None:
        assert found.seconds <= within_h * 3600 * (1 + 1e-9)
        assert found.machines == 1 or images / counted_on / (found.machines - 1) > within_h * 3600 * (1 - 1e-9)


def test_a_job_is_planned_for_people_and_machines(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    file = tmp_path / "job.json"
    file.write_text(JOB.model_dump_json())
    words = ["plan", str(file), "--images", "1e6", "--headroom", "0"]
    assert main(words) == 0
    assert capsys.readouterr().out == (
        "1,000,000 pictures with tiny: 67 min on one machine with 2 cores\n"
        "measured: 250 pictures/s on each, so 2.22 core hours of work\n"
    )
    assert main([*words, "--within-h", "0.5", "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["machines"] == 3


@pytest.mark.parametrize(
    ("content", "words", "code", "said"),
    [
        ("{}", [], 1, "does not tell the rate of a job"),
        (None, [], 1, "cannot be read"),
        (JOB.model_dump_json(), ["--images", "1.5"], 2, "whole number"),
        (JOB.model_dump_json(), ["--images", "inf"], 2, "whole number"),
        (JOB.model_dump_json(), ["--within-h", "0"], 2, "above 0"),
        (JOB.model_dump_json(), ["--headroom", "1"], 2, "below 1"),
    ],
)
def test_a_job_that_cannot_be_planned_is_one_sentence(
    content: str | None, words: list[str], code: int, said: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    file = tmp_path / "job.json"
    if content is not None:
        file.write_text(content)
    assert main(["plan", str(file), "--images", "10", *words]) == code
    errors = capsys.readouterr().err
    assert said in errors
    assert len(errors.splitlines()) == 1
