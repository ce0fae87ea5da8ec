"""Parsing: plugins registered and looked up by name before the parser asks, errors as sentences, shapes for every batch."""

from collections.abc import Sequence
from typing import Any

from gaussport.errors import EngineError
from gaussport.export.engine.backend import Backend
from gaussport.export.engine.log import Messages
from gaussport.plugins import DOMAIN, OPSET_VERSION


def register_plugins(backend: Backend, library: str | None, operators: set[str], messages: Messages) -> None:
    """Load the plugin library and look every operator up, so that a missing one is named before anything is parsed."""
    registry = backend.trt.get_plugin_registry()
    if library is not None and registry.load_library(library) is None:
        raise EngineError(f"TensorRT cannot load the plugin library {library}: {messages.reason}")
    found = {(c.name, c.plugin_version, c.plugin_namespace) for c in registry.all_creators}
    for operator in sorted(operators):
        if (operator, str(OPSET_VERSION), DOMAIN) not in found:
            have = ", ".join(f"{n} {v} in {ns!r}" for n, v, ns in sorted(found)) or "none"
            raise EngineError(
                f"TensorRT has no plugin {operator} version {OPSET_VERSION} in {DOMAIN!r}, it has {have}: rebuild the "
                "plugin library"
            )


def parse(backend: Backend, builder: Any, logger: Any, model: bytes, messages: Messages) -> Any:
    """The network of a model. EngineError with the parser's own words when it refuses."""
    network = builder.create_network(backend.strongly_typed())
    parser = backend.trt.OnnxParser(network, logger)
    if not parser.parse(model):
        errors = [parser.get_error(index) for index in range(parser.num_errors)]
        words = next((_words(error) for error in errors), messages.reason)
        raise EngineError(f"TensorRT cannot parse the graph: {words}")
    return network


def _words(error: Any) -> str:
    """The node at fault, its operator, and the parser's own words."""
    where = " ".join(str(part()) for part in (error.node_name, error.node_operator) if part())
    return " ".join(f"{where + ': ' if where else ''}{error.desc()}".split())


def check_shapes(network: Any, sizes: Sequence[int]) -> None:
    """Raise an EngineError unless the output is [batch, classes] at each of these batch sizes. The network is as before."""
    inputs, logits = network_inputs(network), network.get_output(0)
    dynamic, classes = [tuple(given.shape) for given in inputs], tuple(logits.shape)[1:]
    if any(size < 0 for size in classes):
        raise EngineError(f"TensorRT does not know how many logits there are: the output's shape is {tuple(logits.shape)}")
    try:
        for size in sizes:
            for given, shape in zip(inputs, dynamic, strict=True):
                given.shape = (size, *shape[1:])
            found = tuple(logits.shape)
            if found != (size, *classes):
                raise EngineError(
                    f"at batch {size} TensorRT infers an output of {list(found)} instead of {[size, *classes]}"
                )
    finally:
        for given, shape in zip(inputs, dynamic, strict=True):
            given.shape = shape


def network_inputs(network: Any) -> list[Any]:
    """Its inputs, in order."""
    return [network.get_input(index) for index in range(network.num_inputs)]
