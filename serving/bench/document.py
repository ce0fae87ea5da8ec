"""What `gaussport bench` keeps: one JSON document, and how a later one compares with it."""

from collections.abc import Iterator
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Literal

from pydantic import BaseModel, ConfigDict, Field, ValidationError

from gaussport.errors import DataError, UsageError
from gaussport.serving.bench.machine import Machine
from gaussport.serving.bench.rounds import Timing


class _Record(BaseModel):
    model_config = ConfigDict(frozen=True, extra="forbid")


class Start(_Record):
    """A process of its own, from its start to its first answer; megabytes are resident."""

    ready_s: float
    first_answer_s: float
    before_mb: float
    """Python, the libraries and the manifest, without the weights."""
    loaded_mb: float
    peak_mb: float


class SessionFigures(_Record):
    """One bundle in this process: the timing of one batch, by batch size."""

    model: str
    model_sha256: str
    provider: str
    threads: int
    start: Start
    batches: dict[int, Timing]


class LoadFigures(_Record):
    """One load on one URL. Latencies are from when a request was due to when its answer was whole."""

    url: str
    model: str
    kind: Literal["closed", "open"]
    connections: int | None = None
    offered_per_s: float | None = None
    seconds: float
    answered: int
    refused: int
    """Answered with 429 or 503, which a server may do; any other answer ends the measurement."""
    per_s: float
    p50_ms: float
    p90_ms: float
    p99_ms: float
    server_cpu_ms: float | None = None
    """Of one core, for each answer, as the server's own metrics count it; None where they do not say."""
    client_cpu_ms: float


class Document(_Record):
    schema_version: Literal[1] = 1
    created: datetime = Field(default_factory=lambda: datetime.now(UTC).replace(microsecond=0))
    machine: Machine
    sessions: tuple[SessionFigures, ...] = ()
    loads: tuple[LoadFigures, ...] = ()


def read_document(path: Path) -> Document:
    """Raises DataError when the file is not what `gaussport bench` writes."""
    try:
        return Document.model_validate_json(path.read_bytes())
    except OSError as error:
        raise DataError(f"{path} cannot be read: {error.strerror}") from error
    except ValidationError as error:
        fault = error.errors()[0]
        where = ".".join(map(str, fault["loc"])) or "the file"
        raise DataError(f"{path} is not what gaussport bench writes: {where}: {fault['msg'].lower()}") from None


@dataclass(frozen=True)
class Change:
    """One figure then and now. It `differs` when the quartiles of the two runs are apart: less may be noise."""

    what: str
    before_ms: float
    now_ms: float
    differs: bool

    @property
    def ratio(self) -> float:
        return self.now_ms / self.before_ms


def changes(before: Document, now: Document) -> list[Change]:
    """Every figure that both have.

    Raises:
        UsageError: they are from two machines, or have nothing in common.
    """
    if before.machine.identity != now.machine.identity:
        raise UsageError(f"the figures to compare with are of {_named(before)} and this is {_named(now)}: measure both here")
    found = [*_session_changes(before, now), *_load_changes(before, now)]
    if not found:
        raise UsageError("the two measurements have no model, batch size and threads in common: measure the same again")
    return found


def _named(document: Document) -> str:
    machine = document.machine
    return f"a {machine.processor} with {machine.cores} cores and {machine.memory_gb:.0f} GB"


def _session_changes(before: Document, now: Document) -> Iterator[Change]:
    earlier = {(each.model, each.provider, each.threads): each for each in before.sessions}
    for each in now.sessions:
        then = earlier.get((each.model, each.provider, each.threads))
        for size in each.batches.keys() & then.batches.keys() if then else ():
            assert then is not None
            old, new = then.batches[size], each.batches[size]
            apart = new.low_ms > old.high_ms or new.high_ms < old.low_ms
            yield Change(f"{each.model}, batch {size}", old.wall_ms, new.wall_ms, apart)


def _load_changes(before: Document, now: Document) -> Iterator[Change]:
    earlier = {(each.model, each.kind, each.connections, each.offered_per_s): each for each in before.loads}
    for each in now.loads:
        then = earlier.get((each.model, each.kind, each.connections, each.offered_per_s))
        if then:
            load = f"{each.connections} connections" if each.kind == "closed" else f"{each.offered_per_s:g}/s"
            apart = not 0.9 < each.p50_ms / then.p50_ms < 1.1  # one run each has no quartiles of its own
            yield Change(f"{each.model}, {load}, half within", then.p50_ms, each.p50_ms, apart)
