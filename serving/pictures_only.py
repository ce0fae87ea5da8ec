"""What is made for pictures alone, and refuses models that read more."""

from gaussport.export.bundle.manifest import Manifest
from gaussport.serving.errors import RequestError


def expect_pictures_suffice(manifest: Manifest, model: str) -> None:
    """Raise a RequestError when the model reads something beside pictures."""
    if manifest.further_inputs:
        beside = ", ".join(spec.name for spec in manifest.further_inputs)
        raise RequestError(
            f"pictures alone do not suffice for {model}, which also reads {beside}: send every input in one request to "
            f"/v2/models/{model}/infer",
            "malformed_request",
        )
