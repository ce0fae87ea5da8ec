"""From the float32 graph to the precision wished for, with the layers that have to stay behind.

`convert` comes before the proof; `advice` after it has failed: it looks for the layers that would mend it.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from itertools import chain

import onnx
import onnx_graphsurgeon as gs

from gaussport.export.calibration import cache
from gaussport.export.calibration.ranges import measured_ranges
from gaussport.export.calibration.samples import Source
from gaussport.export.model_file import serialize
from gaussport.export.passes.surgery import operate
from gaussport.export.precision.casting import narrow
from gaussport.export.precision.formats import FORMATS, Format
from gaussport.export.precision.layers import chosen, layers, named
from gaussport.export.precision.overflow import overflowing
from gaussport.export.precision.quantization import quantizable, quantize
from gaussport.export.precision.search import Harm, smallest_set
from gaussport.export.precision.support import unsupported
from gaussport.export.precision.wish import DEFAULT_PICTURES, PrecisionWish
from gaussport.export.probes import Asks
from gaussport.export.progress import Watch

ASKED = "asked for with --keep-fp32"
_PROBED_SIZES = (1, 2, 7)  # batches that show every kind of probe


@dataclass(frozen=True)
class Conversion:
    """A model in its precision. `kept` are the layers that stayed float32 although they might have changed, with the
    reason; `changed` are those that did, and `rebuilt(keep)` is the model with `keep` left in float32."""

    model: onnx.ModelProto
    kept: Mapping[str, str]
    changed: tuple[str, ...]
    rebuilt: Callable[[frozenset[str]], onnx.ModelProto]


def convert(model: onnx.ModelProto, wish: PrecisionWish, probes: Asks, source: Source, watch: Watch) -> Conversion:
    """The model in the precision of `wish`.

    Raises:
        UsageError: a layer to keep does not exist.
        DataError: a picture cannot be read.
        ExportError: the model's activations are not finite.
    """
    if wish.precision == "fp32":
        return Conversion(model, {}, (), lambda _keep: model)
    if wish.precision == "int8":
        return _quantized(model, wish, probes, source, watch)
    return _narrowed(model, FORMATS[wish.precision], wish, probes, source, watch)


def advice(conversion: Conversion, harm: Harm, watch: Watch) -> str:
    """What to do about a conversion that is not good enough, as the rest of a sentence."""
    trials = 0

    def counted(keep: frozenset[str]) -> float:
        nonlocal trials
        trials += 1
        return harm(keep)

    found = smallest_set(conversion.changed, counted, watch)
    if found is None:
        return "no set of layers in float32 mends it, so the precision is not the cause: look at it with --precision fp32"
    names = " ".join([*(name for name, reason in conversion.kept.items() if reason == ASKED), *found])
    return f"keep these layers in float32: --keep-fp32 {names} (the smallest set that {trials} trials found)"


def _narrowed(
    model: onnx.ModelProto, format: Format, wish: PrecisionWish, probes: Asks, source: Source, watch: Watch
) -> Conversion:
    graph = gs.import_onnx(model)
    names = list(layers(graph))
    asked = dict.fromkeys(sorted(chosen(wish.keep_fp32, names, named(graph)), key=names.index), ASKED)
    batches = chain.from_iterable((inputs for _, inputs in probes.batches(size)) for size in _PROBED_SIZES)
    if wish.data is not None:
        pictures = source.unlabelled(wish.data, DEFAULT_PICTURES)
        shown = watch(pictures.batches(), pictures.batch_count, "looking for overflow")
        batches = chain(batches, map(probes.with_samples, shown))
    kept = unsupported(model, format) | overflowing(model, format, batches) | asked
    return _conversion(names, kept, lambda keep: operate(model, lambda graph: narrow(graph, format, keep)))


def _quantized(model: onnx.ModelProto, wish: PrecisionWish, probes: Asks, source: Source, watch: Watch) -> Conversion:
    graph = gs.import_onnx(model)
    names = list(quantizable(graph))
    kept = dict.fromkeys(sorted(chosen(wish.keep_fp32, names, named(graph)), key=names.index), ASKED)
    inputs = sorted({node.inputs[0].name for node in quantizable(graph).values()})
    ranges = _ranges(model, inputs, wish, probes, source, watch)
    return _conversion(names, kept, lambda keep: operate(model, lambda graph: quantize(graph, ranges, keep)))


def _conversion(
    names: Sequence[str], kept: dict[str, str], build: Callable[[frozenset[str]], onnx.ModelProto]
) -> Conversion:
    always = frozenset(kept)
    changed = tuple(name for name in names if name not in always)
    in_order = {name: kept[name] for name in names if name in kept}
    return Conversion(build(always), in_order, changed, lambda keep: build(always | keep))


def _ranges(
    model: onnx.ModelProto, names: list[str], wish: PrecisionWish, probes: Asks, source: Source, watch: Watch
) -> dict[str, float]:
    """Measured, or from the cache when the same model has seen the same pictures."""
    assert wish.calibration_data is not None
    pictures = source.unlabelled(wish.calibration_data, DEFAULT_PICTURES)
    beside = [spec.model_dump_json() for spec in source.further_inputs]
    entry = cache.key(serialize(model), pictures.digest(), wish.calibration_method, *beside, *names)
    ranges = cache.load(entry)
    if ranges is None or set(ranges) != set(names):
        ranges = measured_ranges(model, names, pictures, wish.calibration_method, watch, probes.with_samples)
        cache.save(entry, ranges)
    return ranges
