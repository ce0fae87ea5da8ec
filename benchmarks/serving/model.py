"""The bundles that are served: untrained SSOG classifiers of 224 px, of which only the pace matters."""

import subprocess
import sys
from pathlib import Path

import torch

from gaussport.models.checkpoint.contents import Checkpoint
from gaussport.models.checkpoint.writing import write_checkpoint
from gaussport.models.classifier import Classifier
from gaussport.models.image.preprocess import Preprocessing
from gaussport.models.presets import preset

DEPTHS = {"small": 2, "large": 12}
"""About 4 ms and 25 ms of one core for a picture."""
MAX_BATCH = 16


def bundle(size: str, folder: Path) -> Path:
    """The bundle of this size in `folder`, exported unless it is there."""
    path = folder / size
    if not path.exists():
        folder.mkdir(parents=True, exist_ok=True)
        checkpoint = folder / f"{size}.safetensors"
        config = preset("ssog-d256", depth=DEPTHS[size])
        torch.manual_seed(0)
        weights = Classifier(config).state_dict()
        labels = tuple(f"class {index}" for index in range(config.classes))
        spec = Preprocessing(size=config.image_size, resize_shorter=256)
        write_checkpoint(checkpoint, Checkpoint(config, weights, spec, labels))
        words = ["export", str(checkpoint), "-o", str(path), "--max-batch", str(MAX_BATCH)]
        subprocess.run([sys.executable, "-m", "gaussport", *words], check=True)
    return path
