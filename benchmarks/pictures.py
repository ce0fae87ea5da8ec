"""JPEG to tensor: ways to decode, resize and normalise one picture, and what reduced decoding does to a model's answers.

    python -m benchmarks.pictures [--rounds 15] [--crops 1000] [--no-page]

One thread, processor time, interleaved rounds. The pictures are scikit-learn's photographs: one at 500 × 375, and one made
12 megapixels with sensor-like noise. Answers are compared on crops at their own resolution, so that there is fine detail to
lose, by a d256 of random weights for 64 × 64 pixels, whose margins are small: trained ones lose less. Rewrites its block in
docs/performance.md.
"""

import argparse
import io
from collections.abc import Callable
from functools import partial
from importlib.util import find_spec

import numpy as np
import torch
from numpy.typing import NDArray
from PIL import Image
from rich.console import Console
from sklearn.datasets import load_sample_images

from benchmarks import page
from gaussport.models.classifier import Classifier
from gaussport.models.image.prepare import prepare
from gaussport.models.image.preprocess import Preprocessing
from gaussport.models.presets import preset
from gaussport.serving.bench.machine import this_machine
from gaussport.serving.bench.rounds import interleaved

MEAN, STD = (0.485, 0.456, 0.406), (0.229, 0.224, 0.225)
EXACT = Preprocessing(size=(224, 224), resize_shorter=256, mean=MEAN, std=STD)
Pixels = NDArray[np.float32]


def straightforward(data: bytes) -> Pixels:
    """What a tutorial does: open, convert, resize the shorter side to 256, crop 224, to float, normalise, channels first."""
    image = Image.open(io.BytesIO(data)).convert("RGB")
    shorter = min(image.size)
    image = image.resize((256 * image.width // shorter, 256 * image.height // shorter), Image.Resampling.BILINEAR)
    left, top = (image.width - 224) // 2, (image.height - 224) // 2
    pixels = np.asarray(image.crop((left, top, left + 224, top + 224)), dtype=np.float32) / 255
    return np.ascontiguousarray(((pixels - np.float32(MEAN)) / np.float32(STD)).transpose(2, 0, 1))


def own(data: bytes, spec: Preprocessing) -> Pixels:
    return prepare(data, spec).pixels


def with_simplejpeg(data: bytes) -> Pixels:
    """libjpeg-turbo through simplejpeg, then as ours: what Pillow's own decoding costs more."""
    import simplejpeg

    from gaussport.models.image.preprocess import to_pixels

    return to_pixels(Image.fromarray(simplejpeg.decode_jpeg(data)), EXACT)


def with_pyvips(data: bytes) -> Pixels:
    """libvips' thumbnail, which decodes reduced and resizes with its own filters."""
    import pyvips

    image = pyvips.Image.thumbnail_buffer(data, 256, height=256, crop="centre").crop(16, 16, 224, 224)
    pixels = image.numpy().astype(np.float32) / 255
    return np.ascontiguousarray(((pixels - np.float32(MEAN)) / np.float32(STD)).transpose(2, 0, 1))


def ways() -> dict[str, Callable[[bytes], Pixels]]:
    found: dict[str, Callable[[bytes], Pixels]] = {
        "straightforward Pillow": straightforward,
        "ours, exact": partial(own, spec=EXACT),
        "ours, reduced": partial(own, spec=EXACT.model_copy(update={"decoding": "reduced"})),
    }
    rivals = {"simplejpeg": with_simplejpeg, "pyvips": with_pyvips}
    return found | {f"{name}": way for name, way in rivals.items() if find_spec(name)}


def photographs() -> list[Image.Image]:
    return [Image.fromarray(array) for array in load_sample_images().images]


def jpeg(image: Image.Image) -> bytes:
    buffer = io.BytesIO()
    image.save(buffer, "JPEG", quality=90)
    return buffer.getvalue()


def pictures() -> dict[str, bytes]:
    china = photographs()[0]
    large = np.asarray(china.resize((4000, 3000), Image.Resampling.BICUBIC)).astype(np.float32)
    large += np.random.default_rng(0).normal(0, 4, (3000, 4000, 1)).astype(np.float32)
    return {
        "500 × 375": jpeg(china.resize((500, 375), Image.Resampling.BICUBIC)),
        "4,000 × 3,000": jpeg(Image.fromarray(large.clip(0, 255).astype(np.uint8))),
    }


def speed(rounds: int) -> str:
    rows = []
    for size, data in pictures().items():
        runs = {name: partial(way, data) for name, way in ways().items()}
        exact = runs["straightforward Pillow"]()
        timings = interleaved(runs, rounds)
        base = timings["straightforward Pillow"].cpu_ms
        for name, timing in timings.items():
            off = np.abs(runs[name]() - exact) * np.float32(STD).reshape(3, 1, 1) * 255
            facts = [f"{timing.cpu_ms:.2f}", f"{base / timing.cpu_ms:.2f}", f"{off.mean():.3f}", f"{off.max():.0f}"]
            rows.append([size, name, *facts])
    return page.table(["JPEG", "way", "core ms", "times as fast", "levels off, mean", "at most"], rows, left=2)


def agreement(crops: int) -> str:
    """Of random crops between a quarter and all of a photograph's sides."""
    torch.manual_seed(0)
    torch.set_num_threads(1)
    model = Classifier(preset("ssog-d256", image_size=(64, 64), patch=8)).eval()
    draw = np.random.default_rng(0)
    exact = Preprocessing(size=(64, 64), resize_shorter=72, mean=MEAN, std=STD)
    reduced = exact.model_copy(update={"decoding": "reduced"})
    pixels: tuple[list[Pixels], list[Pixels]] = ([], [])
    for number in range(crops):
        photograph = photographs()[number % 2]
        width, height = (8 * int(draw.integers(side // 16, side // 8 + 1)) for side in photograph.size)
        left, top = int(draw.integers(photograph.width - width + 1)), int(draw.integers(photograph.height - height + 1))
        data = jpeg(photograph.crop((left, top, left + width, top + height)))
        for found, spec in zip(pixels, (exact, reduced), strict=True):
            found.append(prepare(data, spec).pixels)
    with torch.inference_mode():
        answers = [
            torch.cat([model(torch.from_numpy(np.stack(f[n : n + 50]))) for n in range(0, crops, 50)]) for f in pixels
        ]
    same = float((answers[0].argmax(1) == answers[1].argmax(1)).double().mean())
    change = float((answers[0] - answers[1]).abs().max() / answers[0].abs().max())
    spread = float(answers[0].std(0).mean() / answers[0].abs().max())
    return (
        f"Same answer to {same:.2%} of {crops:,} crops; the largest change of a logit is {change:.1e} of the largest logit, "
        f"whose spread over the crops is {spread:.1e}."
    )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, default=15)
    parser.add_argument("--crops", type=int, default=1000)
    parser.add_argument("--no-page", action="store_true", help="print only")
    wish = parser.parse_args()
    text = f"{this_machine()}. One thread.\n\n{speed(wish.rounds)}\n\n{agreement(wish.crops)}"
    Console(highlight=False, soft_wrap=True).print(text)
    if not wish.no_page:
        page.rewrite("pictures", text)


if __name__ == "__main__":
    main()
