"""The model.py of Triton's Python backend: `gaussport triton-repository` copies this file beside the bundle.

It runs the bundle with the server's own runtime, so that preprocessing, providers, engines and plugins are the same. The
Python of Triton needs `gaussport[serve]` (or `[gpu]`); `--python-path` puts lines before this one that say where it is, if
that Python does not find it by itself. Triton makes the batches.
"""

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import triton_python_backend_utils as triton

BUNDLE = "bundle"  # beside this file


class TritonPythonModel:
    """Inputs: `pixels` (the preprocessed tensor) or `image` (one encoded picture), and what else the model reads. Outputs:
    logits and `probabilities`."""

    def initialize(self, args: dict[str, str]) -> None:
        parameters = {key: each["string_value"] for key, each in json.loads(args["model_config"])["parameters"].items()}
        from gaussport.export.bundle.store import open_bundle
        from gaussport.serving.provider_options import ProviderOptions
        from gaussport.serving.runtime import Runtime

        options = ProviderOptions(
            device_id=int(args["model_instance_device_id"]) if args["model_instance_kind"] == "GPU" else 0,
            engine=parameters.get("engine"),
        )
        threads = int(parameters["threads"]) if "threads" in parameters else None
        folder = Path(args["model_repository"], args["model_version"], BUNDLE)
        self.runtime = Runtime(open_bundle(folder), parameters["provider"], threads, options)
        self.manifest = self.runtime.manifest

    def execute(self, requests: Sequence[Any]) -> list[Any]:
        """One answer for each request; one that is wrong fails alone."""
        from gaussport.errors import GaussportError

        rows: list[Any] = []
        for request in requests:
            try:
                rows.append(self._rows(request))
            except GaussportError as error:
                rows.append(triton.TritonError(str(error), triton.TritonError.INVALID_ARG))
        good = [each for each in rows if isinstance(each, np.ndarray)]
        logits = iter(
            np.split(self._run(np.concatenate(good)), np.cumsum([len(each) for each in good])[:-1]) if good else ()
        )
        return [
            self._answer(next(logits)) if isinstance(each, np.ndarray) else triton.InferenceResponse(error=each)
            for each in rows
        ]

    def _rows(self, request: Any) -> Any:
        """Everything that one request brings for the model, a row for each picture."""
        from gaussport.serving.rows import packed

        inputs = {self.manifest.input.name: self._pixels(request)}
        for spec in self.manifest.further_inputs:
            given = triton.get_input_tensor_by_name(request, spec.name)
            inputs[spec.name] = np.from_dlpack(given).astype(spec.dtype)
        return packed(inputs)

    def _pixels(self, request: Any) -> Any:
        """[n, C, H, W] of one request."""
        from gaussport.errors import UsageError
        from gaussport.models.image.prepare import prepare

        given = triton.get_input_tensor_by_name(request, self.manifest.input.name)
        pictures = triton.get_input_tensor_by_name(request, "image")
        if (given is None) == (pictures is None):
            raise UsageError(f"give one of the inputs {self.manifest.input.name} and image")
        if pictures is None:
            pixels = np.from_dlpack(given)  # not as_numpy: backends built for numpy 1 make nonsense of numpy 2
            if not np.isfinite(pixels).all():
                raise UsageError(f"{self.manifest.input.name} has numbers that are not finite")
            return pixels
        spec = self.manifest.preprocessing
        rows = np.from_dlpack(pictures)  # [n, bytes]: of one request all are equally long, so that n is 1 as a rule
        return np.stack([prepare(row.tobytes(), spec).pixels for row in rows])

    def _run(self, rows: Any) -> Any:
        """Logits of all rows; a graph of one batch size is fed in pieces of it, the last filled up with zeros."""
        size = self.runtime.fixed_batch or self.runtime.max_batch
        answers = []
        for start in range(0, len(rows), size):
            piece = rows[start : start + size]
            if missing := (self.runtime.fixed_batch or len(piece)) - len(piece):
                padded = np.concatenate([piece, np.zeros((missing, *piece.shape[1:]), piece.dtype)])
                answers.append(self.runtime.run(padded)[: len(piece)])
            else:
                answers.append(self.runtime.run(piece))
        return np.concatenate(answers)

    def _answer(self, logits: Any) -> Any:
        from gaussport.serving.predictions import probabilities

        if not np.isfinite(logits).all():
            fault = triton.TritonError(
                "the model's answer is not finite: the pixels are out of range", triton.TritonError.INVALID_ARG
            )
            return triton.InferenceResponse(error=fault)
        return triton.InferenceResponse(
            [
                triton.Tensor.from_dlpack(self.manifest.output.name, logits),
                triton.Tensor.from_dlpack("probabilities", probabilities(logits).astype(np.float32)),
            ]
        )
