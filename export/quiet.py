"""Keep the exporter's talk from users: what it logs and warns about is about itself, not about their model."""

import logging
import warnings
from collections.abc import Iterator
from contextlib import contextmanager

_LOGGERS = ("torch.onnx", "torch.export", "onnxscript", "onnx_ir")


@contextmanager
def quiet_exporter() -> Iterator[None]:
    """Inside the block only errors are logged, and the warnings listed here are not raised; all others are."""
    loggers = [logging.getLogger(name) for name in _LOGGERS]
    levels = [logger.level for logger in loggers]
    try:
        for logger in loggers:
            # Warnings here: "torchvision is not installed. Skipping torchvision::nms", which no classifier needs.
            logger.setLevel(logging.ERROR)
        with warnings.catch_warnings():
            # torch 2.13 copies its own traced programs through a class that it deprecated itself.
            warnings.filterwarnings("ignore", r"`isinstance\(treespec, LeafSpec\)` is deprecated", FutureWarning)
            # Of two inputs with the same symbol for the batch, that the second one's name for it is the first one's.
            warnings.filterwarnings("ignore", r"# The axis name: (\w+) will not be used.* another axis: \1\.", UserWarning)
            yield
    finally:
        for logger, level in zip(loggers, levels, strict=True):
            logger.setLevel(level)
