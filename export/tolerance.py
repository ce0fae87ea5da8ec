"""How far an exported model's answers may lie from PyTorch's, with the reason. The one place that says so.

A fixed number fails good models and passes bad ones: logits of 1e4 cannot agree to 1e-5, and logits of 1e-6 always do.
So the tolerance is relative to the largest logit, and follows what the model does with rounding errors of its own:

    tolerance = 8 · own rounding         fp32: PyTorch's float32 against PyTorch's float64
    tolerance = 2.5 · own rounding       fp16, bf16: PyTorch that rounds to the format against PyTorch's float32
    tolerance ≥ scale · floor            for a model that damps rounding errors
    tolerance ≤ scale · ceiling          always: beyond it the answer itself is not to be trusted

What the model does with roundings is told from the module, never from the file that is judged. int8 has no such estimate:
the probes lie outside the pictures that its ranges were chosen from, so that clipping, not rounding, moves its answers,
and how much depends on the file's own ranges. So an int8 model is also held to a twin in PyTorch that uses the same ranges
and rounds the module's own weights: the arithmetic is the same, and the zoo agrees to 3e-3 of the largest logit.
"""

from dataclasses import dataclass

LEAST = {
    "fp32": 2e-5,  # 170 float32 roundings; measured: 3e-7 (tiny) to 1e-6 (12 layers) between torch and ONNX Runtime
    "fp16": 1e-3,  # 2 float16 roundings
    "bf16": 8e-3,  # 2 bfloat16 roundings
}
"""The floor where the model's own rounding is known, as a share of the largest logit."""
FLOORS = {
    "fp32": LEAST["fp32"],
    "fp16": 1e-2,  # 20 float16 roundings: some for each layer in the residual stream
    "bf16": 8e-2,  # 20 bfloat16 roundings
    # Probes lie outside what a calibration covers and are clipped: 0.1 was measured on the zoo. Accuracy on data decides.
    "int8": 2e-1,
}
"""The floor where it is not."""
CEILINGS = {"fp32": 1e-2, "fp16": 1e-1, "bf16": 2e-1, "int8": 4e-1}  # more than this changes which class wins
INTEGERS = 1.5e-2
"""The share of the largest logit by which an int8 model may differ from its twin: halves that round the other way."""
OWN_ROUNDINGS = {
    "fp32": 8.0,  # two float32 programs are each one such error from the truth; the rest is luck of the inputs
    # Of seven models in both formats the export differs by 0.75 to 1.45 times what the rounding module does.
    "fp16": 2.5,
    "bf16": 2.5,
    "int8": 0.0,
}
_ROUNDING = {
    "fp32": "PyTorch's own rounding error",
    "fp16": "what rounding to float16 changes in PyTorch",
    "bf16": "what rounding to bfloat16 changes in PyTorch",
}


@dataclass(frozen=True)
class Tolerance:
    """Largest allowed absolute difference of a logit, and what it was made from."""

    absolute: float
    scale: float
    """Largest absolute logit that PyTorch gave for any of the probes."""
    own_rounding: float | None
    """How far rounding alone moves PyTorch's logits: in fp32 from those in float64, in fp16 and bf16 from those in float32.
    None where it is not known."""
    precision: str
    unknown: str = ""
    """Why the model's own rounding is not known, where there was no PyTorch to ask."""

    @property
    def reason(self) -> str:
        own, scale = self.own_rounding, self.scale
        share = self.absolute / scale if scale else _floor(self.precision, own)
        kind = f"{share:.2g} × the largest logit, {scale:.3g}"
        if self.unknown:
            return f"{self.absolute:.1e} = {kind} ({self.precision}; {self.unknown})"
        if own and self.absolute > _floor(self.precision, own) * scale:
            factor = f"{OWN_ROUNDINGS[self.precision]:g} × {_ROUNDING[self.precision]}, {own:.1e}"
            capped = self.absolute < OWN_ROUNDINGS[self.precision] * own
            kind = f"{kind}, the most that is ever allowed: {factor}, is more" if capped else factor
        return f"{self.absolute:.1e} = {kind} ({self.precision})"


def tolerance_for(precision: str, scale: float, own_rounding: float | None = None) -> Tolerance:
    """The tolerance of a model of that precision whose largest logit is `scale`."""
    floor = _floor(precision, own_rounding) * scale
    absolute = max(floor, OWN_ROUNDINGS[precision] * (own_rounding or 0.0))
    return Tolerance(min(absolute, CEILINGS[precision] * scale), scale, own_rounding, precision)


def tolerance_between_forms(precision: str, scale: float) -> Tolerance:
    """The tolerance between two forms of one model that one runtime runs: both do the same arithmetic."""
    share = FLOORS[precision] * scale
    return Tolerance(share, scale, None, precision, unknown="two forms of one model in one runtime")


def tolerance_between_integers(precision: str, scale: float) -> Tolerance:
    """The tolerance between an int8 model and its twin in PyTorch."""
    return Tolerance(
        INTEGERS * scale, scale, None, precision, unknown="the same integers, but for halves that round otherwise"
    )


def tolerance_between_runners(precision: str, scale: float) -> Tolerance:
    """The tolerance between two ways of running one model, or two models, when PyTorch is not there to tell how it rounds:
    only what no rounding explains is a fault."""
    unknown = "without the checkpoint the model's own rounding is not known"
    return Tolerance(CEILINGS[precision] * scale, scale, None, precision, unknown)


def _floor(precision: str, own_rounding: float | None) -> float:
    return FLOORS[precision] if own_rounding is None else LEAST.get(precision, FLOORS[precision])
