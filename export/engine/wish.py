"""What a caller of the engine builder wishes, and everything about it that can be refused before any work."""

from dataclasses import dataclass
from pathlib import Path

from gaussport.errors import UsageError
from gaussport.export.bundle.engines import BUILDERS
from gaussport.export.bundle.manifest import Manifest
from gaussport.export.engine.architectures import RTX_ARCHITECTURES, listed
from gaussport.plugins.kernels.architectures import ARCHITECTURES as KERNEL_ARCHITECTURES

PRECISIONS = ("fp32", "fp16", "bf16", "int8")


@dataclass(frozen=True)
class Batches:
    """The optimization profile's batch sizes: an engine takes `least` to `most` and is tuned for `best`."""

    least: int
    best: int
    most: int

    def check(self) -> None:
        """Raise a UsageError unless 1 ≤ least ≤ best ≤ most."""
        if self.least < 1:
            raise UsageError(f"--min-batch is {self.least}: the smallest batch is at least 1")
        if not self.least <= self.best <= self.most:
            raise UsageError(
                f"--min-batch {self.least}, --opt-batch {self.best} and --max-batch {self.most} must not descend: "
                "the engine is tuned for a batch inside its range"
            )

    def probes(self) -> list[int]:
        """Every size when they are few, else the ends, the middle and powers of two."""
        if self.most - self.least < 64:
            return list(range(self.least, self.most + 1))
        powers = {1 << n for n in range(self.most.bit_length())}
        return sorted(size for size in powers | {self.least, self.best, self.most} if self.least <= size <= self.most)


@dataclass(frozen=True)
class Lengths:
    """The optimization profile's tokens in a row."""

    least: int
    best: int
    most: int

    def check(self, proved: int) -> None:
        """Raise a UsageError unless 1 ≤ least ≤ best ≤ most ≤ `proved`."""
        if not 1 <= self.least <= self.best <= self.most:
            raise UsageError(
                f"--min-length {self.least}, --opt-length {self.best} and --max-length {self.most} must be at least 1 and "
                "not descend"
            )
        if self.most > proved:
            raise UsageError(
                f"--max-length {self.most} is more than the {proved} tokens that the bundle was proved with: export it with "
                "a larger --max-tokens"
            )


@dataclass(frozen=True)
class Wish:
    """One call of the builder: the engines of one precision for one or several architectures."""

    builder: str
    architectures: tuple[int, ...]
    """Empty means the GPU of this machine."""
    precision: str | None = None
    """None means the bundle's own."""
    least_batch: int = 1
    best_batch: int | None = None
    """None means the largest."""
    most_batch: int | None = None
    """None means the largest that the bundle's proof ran."""
    least_length: int | None = None
    """Of a text: None means 1."""
    best_length: int | None = None
    """None means the length that the model was trained at, or the largest where that is less."""
    most_length: int | None = None
    """None means the longest window that the bundle's proof ran."""
    timing_cache: Path | None = None
    plugins: bool = True
    """Without them the function bodies are built, in TensorRT's own layers: the yardstick of our plugins."""
    quick: bool = False
    """One way to run each kernel in place of several that TensorRT times: minutes of compilation less."""
    overwrite: bool = False

    def batches(self, manifest: Manifest) -> Batches:
        most = manifest.max_batch if self.most_batch is None else self.most_batch
        best = most if self.best_batch is None else self.best_batch
        return Batches(self.least_batch, best, most)

    def lengths(self, manifest: Manifest) -> Lengths | None:
        """None for a model that reads no text."""
        if not manifest.takes_text:
            return None
        most = self.most_length or manifest.tokenization.max_tokens
        trained = manifest.config.get("trained_length")
        best = self.best_length or min(most, trained if isinstance(trained, int) and trained > 0 else most)
        return Lengths(1 if self.least_length is None else self.least_length, best, most)


def check_wish(wish: Wish, manifest: Manifest) -> None:
    """Raise a UsageError for what can never be, whatever is installed."""
    if wish.builder not in BUILDERS:
        raise UsageError(f"there is no builder {wish.builder!r}: choose one of {', '.join(BUILDERS)}")
    batches = wish.batches(manifest)
    batches.check()
    if batches.most > manifest.max_batch:
        raise UsageError(
            f"--max-batch {batches.most} is more than the {manifest.max_batch} that the bundle was proved with: "
            "export it with a larger --max-batch"
        )
    _check_lengths(wish, manifest)
    _check_precision(wish.precision, manifest)
    _check_architectures(wish, manifest)
    if wish.timing_cache is not None and wish.timing_cache.is_dir():
        raise UsageError(f"--timing-cache {wish.timing_cache} is a folder: name a file")


def _check_lengths(wish: Wish, manifest: Manifest) -> None:
    lengths = wish.lengths(manifest)
    if lengths is None:
        if (wish.least_length, wish.best_length, wish.most_length) != (None, None, None):
            raise UsageError("--min-length, --opt-length and --max-length are for text, and this bundle reads pictures")
        return
    lengths.check(manifest.tokenization.max_tokens)
    if manifest.operators and wish.plugins:
        raise UsageError(
            "our plugins are compiled for one length and this bundle reads text of any: build the function bodies with "
            "--without-plugins"
        )


def _check_architectures(wish: Wish, manifest: Manifest) -> None:
    """Whether TensorRT builds for a GPU of this machine is told by the driver, not here."""
    kernels = bool(manifest.operators) and wish.plugins
    offered = tuple(arch for arch in RTX_ARCHITECTURES if not kernels or arch in KERNEL_ARCHITECTURES)
    if wish.builder == "tensorrt-rtx" and (wrong := [arch for arch in wish.architectures if arch not in RTX_ARCHITECTURES]):
        raise UsageError(
            f"TensorRT-RTX does not build for {listed(wrong)}: choose from {listed(offered)}, "
            "or use --builder tensorrt on a machine with that GPU"
        )
    if kernels and (wrong := [arch for arch in wish.architectures if arch not in KERNEL_ARCHITECTURES]):
        choices = offered if wish.builder == "tensorrt-rtx" else KERNEL_ARCHITECTURES
        raise UsageError(
            f"our kernels are not compiled for {listed(wrong)}: choose from {listed(choices)}, "
            "or build the function bodies with --without-plugins"
        )


def _check_precision(precision: str | None, manifest: Manifest) -> None:
    if precision is not None and precision not in PRECISIONS:
        raise UsageError(f"there is no precision {precision!r}: choose one of {', '.join(PRECISIONS)}")
    if precision in (None, manifest.precision):
        return
    if precision == "int8":
        raise UsageError(
            f"the bundle's graph is {manifest.precision} and says nothing of int8 ranges: export the checkpoint with "
            "--precision int8, which measures them, and build from that bundle"
        )
    if manifest.precision != "fp32":
        raise UsageError(
            f"the bundle's graph is {manifest.precision} and cannot become {precision}: build --precision "
            f"{manifest.precision}, or export the checkpoint with --precision {precision} or fp32"
        )
