"""The table of what is served, by name and version, and how it follows the bundles on disk.

A new version is loaded and warmed up beside the old one, then the table is switched in one step, then the old one
answers what it has and goes. A bundle that cannot be served is a line in the index and the log, and nothing else.
All methods belong to the event loop; loading itself happens in a thread.
"""

import asyncio
import logging
from collections.abc import Iterator
from dataclasses import dataclass, replace
from enum import StrEnum
from itertools import groupby

from gaussport.errors import GaussportError, ServingError, UsageError
from gaussport.freed_memory import give_back_memory
from gaussport.serving.errors import RequestError, stopping
from gaussport.serving.metrics import Metrics
from gaussport.serving.repository import Entry, Fingerprint, Repository
from gaussport.serving.served_model import ServedModel
from gaussport.serving.settings import Settings

log = logging.getLogger("gaussport.serving")

Key = tuple[str, str]


class State(StrEnum):
    """The states of the Open Inference Protocol's repository index."""

    LOADING = "LOADING"
    READY = "READY"
    UNLOADING = "UNLOADING"
    UNAVAILABLE = "UNAVAILABLE"


@dataclass(frozen=True)
class IndexEntry:
    """One version of one model in the index; `reason` says why it is not ready, or what its last reload met."""

    name: str
    version: str
    state: State
    reason: str = ""
    faulty: bool = False
    """It is, or its newest files are, what cannot be served; not let go by choice."""
    fingerprint: Fingerprint = ()


class ServedModels:
    """Every model that this server has. `load` once, then `find`; `refresh` follows the disk."""

    def __init__(self, repository: Repository, settings: Settings, metrics: Metrics) -> None:
        self._repository = repository
        self._settings = settings
        self.metrics = metrics
        self._models: dict[str, dict[str, ServedModel]] = {}
        self._index: dict[Key, IndexEntry] = {}
        self._unloaded: set[str] = set()
        """Models that a client unloaded: they come back when a client loads them, not before."""
        self._changing = asyncio.Lock()
        self._retiring: set[asyncio.Task[None]] = set()
        self.begun = False
        self.loading = True
        """Until the first load is over."""
        self.draining = False
        self.stopped = False
        """New requests are refused; a server that can close its port does that instead."""

    # What requests ask.

    def __iter__(self) -> Iterator[ServedModel]:
        """Every version of every model, the newest first."""
        return (model for versions in self._models.values() for model in _newest_first(versions))

    @property
    def names(self) -> list[str]:
        return list(self._models)

    @property
    def ready(self) -> bool:
        """Whether the server takes requests: something can be served, or with `strict_readiness` everything."""
        if self.loading or self.draining or not self._models:
            return False
        states = (entry.state for entry in self._index.values() if entry.name not in self._unloaded)
        return not (self._settings.strict_readiness and State.UNAVAILABLE in states)

    @property
    def why_not_ready(self) -> str:
        if self.loading:
            return "the server is still loading its models"
        return "a model cannot be served: /v2/repository/index says which and why"

    def versions(self, name: str) -> list[str]:
        """The versions of a model that are served, the newest first; RequestError when there are none."""
        return [model.version for model in _newest_first(self._models[self.find(name).name])]

    def find(self, name: str | None = None, version: str | None = None) -> ServedModel:
        """The model asked for: the first when none is named, its newest version when none is named. Enter it (`with`)
        before anything is awaited. RequestError: 404 for what there is not, 503 for what is not ready."""
        if self.loading:
            raise RequestError("the server is still loading its models: retry in a moment", "not_ready", 1)
        if self.stopped:
            raise stopping()
        name = next(iter(self._models), None) if name is None else name
        versions = self._models.get(name or "")
        if not versions:
            raise self._missing(name)
        model = next(iter(_newest_first(versions))) if version is None else versions.get(version)
        if model is None:
            raise RequestError(f"{name} has no such version here: it has {', '.join(versions)}", "unknown_version")
        return model

    def index(self) -> list[IndexEntry]:
        """Every version that is or was there, served or not."""
        return list(self._index.values())

    # What changes it.

    async def load_all(self) -> None:
        """The first load. Raises when nothing at all can be served, in the words of the only bundle if there is one."""
        self.begun = True
        async with self._changing:
            try:
                found = await self._follow(await asyncio.to_thread(self._repository.scan))
            except OSError as error:
                what = f"{error.filename}: {error.strerror}" if error.filename else str(error)
                raise ServingError(f"the bundles cannot be looked up: {what}; let the server's user read them") from error
        faults = list(found.values())
        usage = next((fault for fault in faults if isinstance(fault, UsageError)), None)
        if usage is not None or (len(faults) == 1 and not self._models):
            raise usage or faults[0]
        if not self._models:
            paths = ", ".join(map(str, self._repository.paths))
            reason = (
                f"none of {len(faults)} bundles can be served; the first: {faults[0]}" if faults else "there is no bundle"
            )
            raise ServingError(f"{paths}: {reason}")
        self.loading = False

    async def refresh(self) -> None:
        """Load what is new or changed on disk and let go what is no longer there. Never raises for a bundle's fault."""
        async with self._changing:
            try:
                _log(await self._follow(await asyncio.to_thread(self._repository.scan)))
            except (GaussportError, OSError) as error:
                log.error("the bundles cannot be looked up, what is served stays: %s", error)

    async def load(self, name: str) -> None:
        """Load a model, or load it again if its files changed or it failed before. RequestError when it cannot be."""
        async with self._changing:
            try:
                entries = [entry for entry in await asyncio.to_thread(self._repository.scan) if entry.name == name]
            except (GaussportError, OSError) as error:
                raise RequestError(f"the bundles cannot be looked up: {error}", "load_failed") from error
            if not entries:
                raise RequestError("there is no bundle of that name to load", "unknown_model")
            self._unloaded.discard(name)
            for entry in entries:
                known = self._index.get((entry.name, entry.version))
                if known is not None and known.faulty:
                    del self._index[entry.name, entry.version]  # so that it is tried again
            faults = await self._follow(entries, only=name)
            if faults:
                _log(faults)
                raise RequestError(f"{name} cannot be loaded: {next(iter(faults.values()))}", "load_failed")

    async def unload(self, name: str) -> None:
        """Serve a model no longer: requests that have it are answered, new ones get 404. RequestError if it is unknown."""
        async with self._changing:
            if name not in self._models:
                raise self._missing(name)
            self._unloaded.add(name)
            for version in list(self._models[name]):
                self._let_go((name, version), "unloaded by a client")

    async def close(self) -> None:
        """Refuse what still waits, everywhere, and let the batches that run end."""
        for model in self:
            await model.close()
        for task in self._retiring:
            task.cancel()
        await asyncio.gather(*self._retiring, return_exceptions=True)

    # How.

    async def _follow(self, entries: list[Entry], only: str | None = None) -> dict[Key, GaussportError]:
        """Bring the table to what these entries and the version policy say; the faults of what could not be loaded."""
        faults: dict[Key, GaussportError] = {}
        for name, group in groupby(entries, key=lambda entry: entry.name):
            if name in self._unloaded:
                continue
            kept: set[str] = set()
            newest = 0
            for entry in group:
                wanted = entry.pinned or not self._settings.versions or newest < self._settings.versions
                if wanted and await self._bring(entry, faults):
                    kept.add(entry.version)
                    newest += not entry.pinned
            # The last version stays until its model's folder is gone: a newest one that is broken replaces nothing.
            for version in set(self._models.get(name, ())) - kept if kept else ():
                self._let_go((name, version), "superseded")
        if only is None:
            self._forget_all_but(entries)
        return faults

    def _forget_all_but(self, entries: list[Entry]) -> None:
        for name in set(self._models) - {entry.name for entry in entries}:
            if self._repository.has(name):
                continue
            for version in list(self._models[name]):
                self._let_go((name, version), _GONE)
        there = {(entry.name, entry.version) for entry in entries}
        for key, known in list(self._index.items()):
            if key not in there and known.state is State.UNAVAILABLE:
                del self._index[key]

    async def _bring(self, entry: Entry, faults: dict[Key, GaussportError]) -> bool:
        """Have this entry served, if it is not. False when it cannot be."""
        key = (entry.name, entry.version)
        known = self._index.get(key)
        served = self._models.get(entry.name, {}).get(entry.version)
        if known is not None and known.fingerprint == entry.fingerprint and (served is not None or known.faulty):
            return served is not None
        self._note(entry, State.READY if served else State.LOADING)
        try:
            model = await asyncio.to_thread(self._loaded, entry)
        except Exception as error:  # noqa: BLE001 - whatever a bundle makes its readers raise, the others are served
            fault = error if isinstance(error, GaussportError) else ServingError(f"{entry.path} cannot be served: {error!r}")
            faults[key] = fault
            self.metrics.loads.labels("failed").inc()
            self._note(entry, State.READY if served else State.UNAVAILABLE, fault)
            return served is not None
        model.start()
        self._models.setdefault(entry.name, {})[entry.version] = model
        self.metrics.loads.labels("ok").inc()
        log.info("model %s, version %s is served from %s", *key, entry.path)
        self._note(entry, State.READY)
        if served is not None:
            self._retire(served, None)
        return True

    def _loaded(self, entry: Entry) -> ServedModel:
        return ServedModel(entry.open(), self._settings, self.metrics, entry.name, entry.version)

    def _let_go(self, key: Key, reason: str) -> None:
        name, version = key
        model = self._models[name].pop(version)
        if not self._models[name]:
            del self._models[name]
        self._index[key] = replace(self._index[key], state=State.UNLOADING, reason=reason)
        log.info("model %s, version %s goes: %s", name, version, reason)
        self._retire(model, reason)

    def _retire(self, model: ServedModel, reason: str | None) -> None:
        """Let a model end in the background; then its index entry says why it went."""
        key = (model.name, model.version)

        async def end(model: ServedModel | None) -> None:
            assert model is not None
            await model.retire(self._settings.body_timeout_s + self._settings.timeout_ms / 1000)
            model = None  # the last that held it
            await asyncio.to_thread(give_back_memory)
            known = self._index.get(key)
            if reason is not None and known is not None and known.state is State.UNLOADING:
                self._index[key] = replace(known, state=State.UNAVAILABLE)
                if reason is _GONE:
                    del self._index[key]

        task = asyncio.get_running_loop().create_task(end(model))
        self._retiring.add(task)
        task.add_done_callback(self._retiring.discard)

    def _note(self, entry: Entry, state: State, fault: GaussportError | None = None) -> None:
        key, reason = (entry.name, entry.version), "" if fault is None else str(fault)
        self._index[key] = IndexEntry(*key, state, reason, fault is not None, entry.fingerprint)

    def _missing(self, name: str | None) -> RequestError:
        if any(entry.name == name and (entry.faulty or entry.state is State.LOADING) for entry in self._index.values()):
            return RequestError(f"{name} is not ready: /v2/repository/index says why", "not_ready", 1)
        return RequestError(f"this server has no model of that name: it has {', '.join(self.names)}", "unknown_model")


_GONE = "no longer there"


def _log(faults: dict[Key, GaussportError]) -> None:
    for (name, version), fault in faults.items():
        log.error("model %s, version %s cannot be served: %s", name, version, fault)


def _newest_first(versions: dict[str, ServedModel]) -> list[ServedModel]:
    return sorted(versions.values(), key=lambda model: -int(model.version))
