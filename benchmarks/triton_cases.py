"""The requests of `triton_compare.py`, good, odd and hostile, and why ours is answered otherwise where it is meant to be."""

import gzip
import json
import zlib
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from gaussport.export.bundle.manifest import Manifest

HEAD_LENGTH = "Inference-Header-Content-Length"

FINITE = "numbers that are not finite are refused: they would answer NaN"
MISTAKE = "a client's mistake is answered 400 or 404, never 500, and ends no server"
OTHERS = "not of this protocol: logs, traces and shared memory are the operator's"
STRICT = "what is incomplete, or is not as the request announces it, is refused and not guessed at"
ERROR_BODY = "every answer has a JSON body, errors with code and request_id"
SPLIT = "a batch larger than max_batch_size is split and joined again"
NULLS = "null counts as absent: clients made from a schema write out what they leave unset"
STATUS = "what there is not is 404"
PLATFORM = "what runs is named; fields of Triton's own scheduler are left out"


@dataclass(frozen=True)
class Case:
    """One request, and the reason for an intended difference, if there is one."""

    name: str
    method: str
    path: str
    body: bytes | None = None
    headers: dict[str, str] = field(default_factory=dict)
    reason: str = ""


def cases(manifest: Manifest) -> list[Case]:
    model = f"/v2/models/{manifest.name}"
    return [*_descriptions(model), *_repository(), *_inferences(_Maker(manifest, f"{model}/infer"))]


def _descriptions(model: str) -> Iterator[Case]:
    yield Case("server metadata", "GET", "/v2", reason="name, version and extensions are ours")
    yield Case("server live", "GET", "/v2/health/live", reason=ERROR_BODY)
    yield Case("server ready", "GET", "/v2/health/ready", reason=ERROR_BODY)
    yield Case("model metadata", "GET", model, reason=PLATFORM)
    yield Case("version metadata", "GET", f"{model}/versions/1", reason=PLATFORM)
    yield Case("model ready", "GET", f"{model}/ready", reason=ERROR_BODY)
    yield Case("model config", "GET", f"{model}/config", reason=PLATFORM)
    yield Case("model stats", "GET", f"{model}/stats", reason="their counts and times differ")
    yield Case("stats of all", "GET", "/v2/models/stats", reason="their counts and times differ")
    for path in ("", "/ready", "/config", "/stats", "/infer"):
        method = "POST" if path == "/infer" else "GET"
        body = b"{}" if path == "/infer" else None
        yield Case(f"unknown model {path or 'metadata'}", method, f"/v2/models/nobody{path}", body, reason=STATUS)
        yield Case(f"unknown version {path or 'metadata'}", method, f"{model}/versions/9{path}", body, reason=STATUS)
        yield Case(
            f"version that is no number {path or 'metadata'}", method, f"{model}/versions/x{path}", body, reason=STATUS
        )
    for path in ("logging", "trace/setting", "systemsharedmemory/status", "cudasharedmemory/status"):
        yield Case(f"Triton's {path}", "GET", f"/v2/{path}", reason=OTHERS)
    yield Case("unknown path", "GET", "/v2/nothing")
    yield Case("method not allowed", "DELETE", model, reason=ERROR_BODY)
    yield Case("GET of infer", "GET", f"{model}/infer", reason=ERROR_BODY)


def _repository() -> Iterator[Case]:
    index = "/v2/repository/index"
    yield Case("index", "POST", index)
    yield Case("index of the ready", "POST", index, b'{"ready": true}')
    yield Case("index, broken JSON", "POST", index, b'{"ready": ')
    yield Case("load unknown model", "POST", "/v2/repository/models/nobody/load", b"{}", reason=STATUS)
    yield Case("unload unknown model", "POST", "/v2/repository/models/nobody/unload", b"{}", reason=STATUS)


@dataclass(frozen=True)
class _Maker:
    """Requests for one model, each a change of a good one."""

    manifest: Manifest
    path: str

    @property
    def shape(self) -> list[int]:
        return [2, *self.manifest.preprocessing.tensor_shape]

    def values(self, rows: int = 2) -> "np.ndarray[Any, np.dtype[np.float32]]":
        shape = [rows, *self.manifest.preprocessing.tensor_shape]
        return np.random.default_rng(0).uniform(-1, 1, shape).astype("<f4")

    def content(self, **changes: Any) -> dict[str, Any]:
        tensor = {"name": self.manifest.input.name, "shape": self.shape, "datatype": "FP32"}
        return {"inputs": [tensor | {"data": self.values().reshape(-1).tolist()} | changes]}

    def json(self, name: str, content: Any, reason: str = "", **headers: str) -> Case:
        body = content if isinstance(content, bytes) else json.dumps(content).encode()
        return Case(name, "POST", self.path, body, {"Accept-Encoding": "identity", **headers}, reason)

    def input(self, name: str, reason: str = "", /, **changes: Any) -> Case:
        return self.json(name, self.content(**changes), reason)

    def binary(self, name: str, raw: bytes, reason: str = "", length: str | None = None, **changes: Any) -> Case:
        tensor = {"name": self.manifest.input.name, "shape": self.shape, "datatype": "FP32"}
        tensor = tensor | {"parameters": {"binary_data_size": len(raw)}} | changes
        head = json.dumps({"inputs": [tensor]}).encode()
        headers = {HEAD_LENGTH: length or str(len(head)), "Accept-Encoding": "identity"}
        return Case(name, "POST", self.path, head + raw, headers, reason)


def _inferences(make: _Maker) -> Iterator[Case]:
    yield from _good(make)
    yield from _odd_json(make)
    yield from _odd_tensors(make)
    yield from _odd_binary(make)


def _good(make: _Maker) -> Iterator[Case]:
    good, output = make.content(), make.manifest.output.name
    raw = make.values().tobytes()
    body = json.dumps(good).encode()
    yield make.json("JSON", good)
    yield make.input("JSON, nested", data=make.values().tolist())
    yield make.json("id", good | {"id": "mine"})
    yield make.json("output by name", good | {"outputs": [{"name": output}]})
    yield make.json("binary output", good | {"outputs": [{"name": output, "parameters": {"binary_data": True}}]})
    yield make.json("binary_data_output", good | {"parameters": {"binary_data_output": True}})
    yield make.binary("binary input", raw)
    row = make.values(1).tobytes()
    yield Case("one raw row", "POST", make.path, row, {HEAD_LENGTH: "0", "Accept-Encoding": "identity"})
    yield Case("two raw rows", "POST", make.path, row * 2, {HEAD_LENGTH: "0", "Accept-Encoding": "identity"})
    for count in (1, 3, 1000):
        wanted = {"name": output, "parameters": {"classification": count}}
        yield make.json(f"classification {count}", good | {"outputs": [wanted]})
        wanted = {"name": output, "parameters": {"classification": count, "binary_data": True}}
        yield make.json(f"classification {count}, binary", good | {"outputs": [wanted]})
    yield make.json("gzip request", gzip.compress(body), **{"Content-Encoding": "gzip"})
    yield make.json("deflate request", zlib.compress(body), **{"Content-Encoding": "deflate"})
    yield make.json("gzip answer", good, **{"Accept-Encoding": "gzip"})
    yield make.json("deflate answer", good, **{"Accept-Encoding": "deflate"})
    yield make.json("timeout and priority", good | {"parameters": {"timeout": 5_000_000, "priority": 1}})
    yield make.json("unknown parameter", good | {"parameters": {"mine": "yes"}})
    rows = make.manifest.max_batch + 1
    shape = [rows, *make.shape[1:]]
    yield make.binary("more rows than max_batch_size", make.values(rows).tobytes(), SPLIT, shape=shape)


def _odd_json(make: _Maker) -> Iterator[Case]:
    good, output = make.content(), make.manifest.output.name
    yield make.json("empty body", b"")
    yield make.json("not JSON", b"hello")
    yield make.json("cut short", json.dumps(good).encode()[:-20])
    yield make.json("a list", b"[]")
    yield make.json("deep nesting", b'{"inputs":' + b"[" * 100_000 + b"]" * 100_000 + b"}")
    yield make.json("no inputs", {})
    yield make.json("inputs empty", {"inputs": []})
    yield make.json("inputs an object", {"inputs": {}})
    yield make.json("inputs of numbers", {"inputs": [1]})
    yield make.json("the same input twice", {"inputs": good["inputs"] * 2})
    yield make.json("id a number", good | {"id": 7})
    yield make.json("id null", good | {"id": None}, NULLS)
    yield make.json("parameters null", good | {"parameters": None}, NULLS)
    yield make.json("outputs null", good | {"outputs": None}, NULLS)
    yield make.json("parameters a list", good | {"parameters": []})
    yield make.json("outputs a text", good | {"outputs": output})
    yield make.json("unknown output", good | {"outputs": [{"name": "nothing"}]}, STATUS)
    yield make.json("output without a name", good | {"outputs": [{}]})
    yield make.json("classification negative", good | {"outputs": [{"name": output, "parameters": {"classification": -1}}]})
    yield make.json("timeout negative", good | {"parameters": {"timeout": -1}})
    yield make.json("timeout a text", good | {"parameters": {"timeout": "1"}})
    yield make.json("timeout beyond 64 bits", good | {"parameters": {"timeout": 10**30}})
    yield make.json("priority a fraction", good | {"parameters": {"priority": 1.5}})
    yield make.json("unknown Content-Encoding", good, **{"Content-Encoding": "br"})
    cut = gzip.compress(json.dumps(good).encode())[:-9]
    yield make.json("gzip cut short", cut, STRICT, **{"Content-Encoding": "gzip"})
    yield make.json("no gzip at all", good, **{"Content-Encoding": "gzip"})


def _odd_tensors(make: _Maker) -> Iterator[Case]:
    flat = make.values().reshape(-1).tolist()
    text = json.dumps(make.content())
    first = json.dumps(flat[0])
    for name, value in (
        ("NaN", "NaN"),
        ("Infinity", "Infinity"),
        ("1e39", "1e39"),
        ("1e400", "1e400"),
        ("long", "9" * 5000),
    ):
        yield make.json(f"number {name}", text.replace(first, value, 1).encode(), FINITE)
    for value in ("0.5", True, None, {}, [0.5]):
        yield make.input(f"number {value!r}", STRICT, data=[value, *flat[1:]])
    yield make.input("one number short", data=flat[:-1])
    yield make.input("one number more", data=[*flat, 0.5])
    yield make.input("nested another way", STRICT, data=[flat])
    yield make.input("data a number", data=0.5)
    yield make.input("data absent", data=None)
    yield make.input("unknown input", name="nobody")
    yield make.input("input without a name", name=None)
    yield make.input("datatype FP64", datatype="FP64")
    yield make.input("datatype unknown", datatype="FP33")
    yield make.input("datatype a number", datatype=3)
    for shape in (make.shape[1:], [*make.shape, 1], [2, 3, 5, 7], [2], [], None, "x", [True, *make.shape[1:]]):
        yield make.input(f"shape {shape}", shape=shape)
    yield make.input("shape of fractions", STRICT, shape=[float(side) for side in make.shape])
    yield make.input("shape without rows", shape=[0, *make.shape[1:]], data=[])
    yield make.input("shape negative", shape=[-2, *make.shape[1:]])
    yield make.input("shape -1", shape=[-1, *make.shape[1:]])
    for side in (2**31, 2**62, 2**64, 10**30):
        yield make.input(f"shape {side}", shape=[side, *make.shape[1:]])
    yield make.input("shape whose product overflows", shape=[2**32, 2**32, 2**32, 4])


def _odd_binary(make: _Maker) -> Iterator[Case]:
    values = make.values()
    raw = values.tobytes()
    for name, value in (("NaN", np.nan), ("infinity", np.inf)):
        odd = values.copy()
        odd[0, 0, 0, 0] = value
        yield make.binary(f"binary {name}", odd.tobytes(), FINITE)
    for length in ("0", "-1", "x", "1.5", "99999999", "9" * 40, "5"):
        yield make.binary(f"head length {length[:12]}", raw, length=length)
    yield Case("head length absent", "POST", make.path, make.binary("", raw).body, {"Accept-Encoding": "identity"})
    yield make.binary("binary one byte short", raw[:-1])
    yield make.binary("binary empty", b"")
    for size in (len(raw) + 1, len(raw) - 4, -1, 1 << 40, 1 << 63, 10**30, "x", 1.5, None):
        yield make.binary(f"binary_data_size {size!r:.24}", raw, parameters={"binary_data_size": size})
    yield make.binary("bytes behind the last tensor", raw + b"1234", STRICT, parameters={"binary_data_size": len(raw)})
    yield make.binary("binary and data", raw, data=values.reshape(-1).tolist())
