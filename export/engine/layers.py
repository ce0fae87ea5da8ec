"""The layers that TensorRT made of the graph: their types, precisions and which are plugins, read from TensorRT itself."""

import json
from collections import Counter
from collections.abc import Collection, Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any

from gaussport.errors import EngineError

PRECISIONS = {"FLOAT": "fp32", "HALF": "fp16", "BF16": "bf16", "INT8": "int8", "INT32": "int32", "INT64": "int64"}
_HEAVY = ("MATRIX_MULTIPLY", "CONVOLUTION", "PLUGIN_V3")
"""The layers that take the time: what an engine's precision means is theirs."""


@dataclass(frozen=True)
class Layer:
    """One layer of the network; `shape` is its first output's, with -1 for the batch."""

    name: str
    kind: str
    precision: str
    plugin: bool
    shape: tuple[int, ...]


def network_layers(network: Any) -> list[Layer]:
    """Every layer of a parsed network, in order, as TensorRT typed it."""
    layers = [network.get_layer(index) for index in range(network.num_layers)]
    makers = {layer.get_output(index).name: layer for layer in layers for index in range(layer.num_outputs)}
    return [_layer(layer, makers) for layer in layers]


def _layer(layer: Any, makers: Mapping[str, Any]) -> Layer:
    kind, output = layer.type.name, layer.get_output(0)
    shape = () if output is None else tuple(int(size) for size in output.shape)
    dtype = "INT8" if kind == "MATRIX_MULTIPLY" and _of_int8(layer, makers) else layer.get_output_type(0).name
    return Layer(layer.name, kind, PRECISIONS.get(dtype, dtype.lower()), kind == "PLUGIN_V3", shape)


def _of_int8(product: Any, makers: Mapping[str, Any]) -> bool:
    """Whether both factors are dequantized int8: TensorRT then multiplies integers, whatever type the graph names."""
    return all(_dequantized(product.get_input(index), makers) for index in range(2))


def _dequantized(tensor: Any, makers: Mapping[str, Any]) -> bool:
    maker = makers.get(tensor.name)
    while maker is not None and maker.type.name in ("SHUFFLE", "CAST"):
        tensor = maker.get_input(0)
        maker = makers.get(tensor.name)
    return maker is not None and maker.type.name == "DEQUANTIZE" and maker.get_input(0).dtype.name == "INT8"


def check_plugins(layers: Sequence[Layer], names: Collection[str]) -> None:
    """Raise an EngineError unless each node of these names became one plugin layer, and nothing else did."""
    plugins = Counter(layer.name for layer in layers if layer.plugin)
    missing = [name for name in names if plugins[name] != 1]
    if missing:
        found = Counter(layer.kind for layer in layers if layer.name == missing[0]) or "no layer"
        raise EngineError(
            f"TensorRT made {missing[0]} into {found if isinstance(found, str) else ', '.join(found)} instead of a plugin: "
            "its function body would run, not our kernels"
        )
    foreign = [name for name in plugins if name not in set(names)]
    if foreign:
        raise EngineError(f"TensorRT took a plugin for {foreign[0]}, which is no operator of ours")


def check_precision(layers: Sequence[Layer], precision: str) -> None:
    """Raise an EngineError when no heavy layer has the precision that was asked for."""
    heavy = Counter(layer.precision for layer in layers if layer.kind in _HEAVY)
    if precision not in heavy:
        have = ", ".join(f"{number} {name}" for name, number in heavy.most_common()) or "none"
        raise EngineError(f"{precision} was asked for but the layers that TensorRT made of the graph are {have}")


def engine_layers(trt: Any, logger: Any, engine: bytes) -> list[dict[str, Any]] | None:
    """The fused layers of a built engine, from its inspector; None where it cannot be loaded, which takes its GPU."""
    runtime = trt.Runtime(logger)
    loaded = runtime.deserialize_cuda_engine(engine)
    if loaded is None:
        return None
    text = loaded.create_engine_inspector().get_engine_information(trt.LayerInformationFormat.JSON)
    layers = json.loads(text).get("Layers", [])
    return [layer if isinstance(layer, dict) else {"Name": layer} for layer in layers]


def summary(layers: Sequence[Layer]) -> dict[str, int]:
    """How many heavy layers there are of each kind and precision: `{"plugin fp16": 4, "matrix multiply fp16": 28}`."""
    words = {"PLUGIN_V3": "plugin", "MATRIX_MULTIPLY": "matrix multiply", "CONVOLUTION": "convolution"}
    counts = Counter(f"{words[layer.kind]} {layer.precision}" for layer in layers if layer.kind in _HEAVY)
    return dict(sorted(counts.items()))


def report(layers: Sequence[Layer], engine: list[dict[str, Any]] | None) -> str:
    """`layers.json`: the network's layers, and the engine's when it could be loaded."""
    document = {
        "summary": summary(layers),
        "network": [asdict(layer) for layer in layers],
        "engine": engine,
    }
    return json.dumps(document, indent=1) + "\n"
