"""The defaults that an export had to take, each as a line that says how to state the thing instead."""

from gaussport.export.bundle.manifest import Manifest

_OPTIONS = {"mean": "--mean", "std": "--std", "resize": "--resize and --crop", "interpolation": "--interpolation"}


def assumptions(manifest: Manifest) -> list[str]:
    """What `provenance.assumed` lists, in as few lines as there are options to state it."""
    assumed = manifest.provenance.assumed
    pictures = [name for name in assumed if name.partition(".")[0] in ("preprocessing", "labels")]
    fields = [_field(name, manifest) for name in assumed if name not in pictures]
    lines = [_line(name, manifest) for name in pictures]
    if fields:
        lines.append(f"{', '.join(fields)}, which no shape tells and nobody stated: give others with --set FIELD=VALUE")
    return lines


def _field(name: str, manifest: Manifest) -> str:
    field = name.removeprefix("attention.")
    value = manifest.config["attention"].get(field) if name != field else manifest.config.get(field)
    return f"{field} {'×'.join(map(str, value)) if isinstance(value, list) else value}"


def _line(name: str, manifest: Manifest) -> str:
    spec = manifest.preprocessing
    if name == "labels":
        return "labels 0, 1, 2 …, which the checkpoint does not state: give them with --labels"
    if name == "preprocessing":
        return (
            f"preprocessing, which the checkpoint does not state: {spec.size[0]}×{spec.size[1]}, {spec.channels}, "
            f"mean {spec.mean}, std {spec.std}; if it was trained otherwise, answers are wrong: give its own with "
            "--preprocessing, or --mean, --std, --resize and --crop"
        )
    part = name.removeprefix("preprocessing.")
    value = f"to {spec.size[0]}×{spec.size[1]}" if part == "resize" else getattr(spec, part)
    return f"{part} {value}, which nobody stated: give the trained one with {_OPTIONS[part]}"
