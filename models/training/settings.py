"""What a training run is set to: the same settings, data and thread count give the same weights, bit for bit."""

from dataclasses import dataclass, field

from gaussport.errors import UsageError


@dataclass(frozen=True, kw_only=True)
class Augmentation:
    """Random changes of a training picture that leave its class alone. Shifts are fractions of the side."""

    shift: float = 0.08
    scale: float = 0.1
    rotation_degrees: float = 10.0
    mirror: bool = False


@dataclass(frozen=True, kw_only=True)
class TrainingSettings:
    """`learning_rate` is the peak, after `warmup_epochs` of linear rise and before the cosine fall to zero."""

    epochs: int = 25
    batch_size: int = 64
    learning_rate: float = 3e-3
    weight_decay: float = 0.05
    warmup_epochs: int = 2
    label_smoothing: float = 0.05
    clip_norm: float = 1.0
    seed: int = 0
    augmentation: Augmentation = field(default_factory=Augmentation)

    def __post_init__(self) -> None:
        for name in ("epochs", "batch_size", "learning_rate", "clip_norm"):
            if not 0 < getattr(self, name) < float("inf"):
                raise UsageError(f"{name} is {getattr(self, name)} but must be above zero")
        if not 0 <= self.seed < 2**31:
            raise UsageError(f"seed is {self.seed} but must be between 0 and {2**31 - 1}")
