"""How far an exported model's answers may lie from PyTorch's, with the reason. The one place that says so.

A fixed number fails good models and passes bad ones: logits of 1e4 cannot agree to 1e-5, and logits of 1e-6 always do.
So the tolerance is relative to the largest logit, and follows what the model does with rounding errors of its own:

    tolerance = scale · floor            for a model that damps rounding errors (most do)
    tolerance = 8 · own rounding         for one that amplifies them: PyTorch's float32 against PyTorch's float64
    tolerance ≤ scale · ceiling          always: beyond it the answer itself is not to be trusted
"""

from dataclasses import dataclass

FLOORS = {
    "fp32": 2e-5,  # 170 float32 roundings; measured: 3e-7 (tiny) to 1e-6 (12 layers) between torch and ONNX Runtime
    "fp16": 1e-2,  # 10 float16 roundings: one for each layer in the residual stream
    "bf16": 8e-2,  # 10 bfloat16 roundings
    # Probes lie outside what a calibration covers and are clipped: 0.1 was measured on the zoo. Accuracy on data decides.
    "int8": 2e-1,
}
CEILINGS = {"fp32": 1e-2, "fp16": 1e-1, "bf16": 2e-1, "int8": 4e-1}  # more than this changes which class wins
OWN_ROUNDINGS = 8  # two float32 programs are each one such error from the truth; the rest is luck of the inputs


@dataclass(frozen=True)
class Tolerance:
    """Largest allowed absolute difference of a logit, and what it was made from."""

    absolute: float
    scale: float
    """Largest absolute logit that PyTorch gave for any of the probes."""
    own_rounding: float
    """Largest difference between PyTorch in float32 and in float64."""
    precision: str
    against_pytorch: bool = True
    """Without PyTorch its rounding is not known, and only what no rounding explains is a fault: the ceiling holds."""

    @property
    def reason(self) -> str:
        if not self.against_pytorch:
            share = f"{CEILINGS[self.precision]:.0e} × the largest logit, {self.scale:.3g}"
            unknown = "without the checkpoint the model's own rounding is not known"
            return f"{self.absolute:.1e} = {share} ({self.precision}; {unknown})"
        floor = FLOORS[self.precision] * self.scale
        if self.absolute > floor:
            kind = f"{OWN_ROUNDINGS} × PyTorch's own rounding error of {self.own_rounding:.1e}"
        else:
            kind = f"{FLOORS[self.precision]:.0e} × the largest logit, {self.scale:.3g}"
        return f"{self.absolute:.1e} = {kind} ({self.precision})"


def tolerance_for(precision: str, scale: float, own_rounding: float = 0.0) -> Tolerance:
    """The tolerance of a model of that precision whose largest logit is `scale`."""
    absolute = max(FLOORS[precision] * scale, OWN_ROUNDINGS * own_rounding)
    return Tolerance(min(absolute, CEILINGS[precision] * scale), scale, own_rounding, precision)


def tolerance_between_runners(precision: str, scale: float) -> Tolerance:
    """The tolerance between two ways of running one model, when PyTorch is not there to tell how it rounds."""
    return Tolerance(CEILINGS[precision] * scale, scale, 0.0, precision, against_pytorch=False)
