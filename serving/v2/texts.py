"""Inference requests to a model that reads text: `text` (BYTES) or `tokens` (INT64, padded at the right)."""

import asyncio
import time
from collections.abc import Callable
from dataclasses import replace

import numpy as np
from numpy.typing import NDArray

from gaussport.serving.decoding import Decoder
from gaussport.serving.errors import RequestError
from gaussport.serving.served_model import Rows, ServedModel
from gaussport.serving.text.classify import of_documents
from gaussport.serving.text.reader import Document, Tokens
from gaussport.serving.v2.inputs import Given
from gaussport.serving.v2.tensors import texts, tokens
from gaussport.serving.waiting import Answer

_LEAST = np.finfo(np.float32).tiny


async def answer_of_texts(
    served: ServedModel, inputs: Given, decoder: Decoder, deadline: float, urgent: bool, most: int
) -> tuple[Answer, float]:
    """A row [K] for each text: the model's own logits, or of one that was read in windows the logarithm of its
    probabilities, which softmax turns back into them. And the seconds that it took to cut them."""
    reader, tensor = served.reader, inputs.first

    def documents() -> list[Document]:
        if inputs.encoded:
            return [reader.read(text) for text in texts(tensor, most)]
        return [reader.cut(row) for row in _rows(tokens(tensor, reader.spec.vocabulary), reader.spec.pad, tensor.name)]

    began = time.monotonic()
    found = await _off_the_loop(documents, decoder)
    read_s = time.monotonic() - began
    answers, answer = await of_documents(found, served, deadline, urgent, read_s)
    firsts = np.cumsum([0] + [len(document.windows) for document in found[:-1]])
    logits: Rows = answer.logits[firsts]
    for row, document, probabilities in zip(logits, found, answers, strict=True):
        if len(document.windows) > 1:
            row[:] = np.log(np.maximum(probabilities, _LEAST))
    return replace(answer, logits=logits), read_s


async def _off_the_loop(make: Callable[[], list[Document]], decoder: Decoder) -> list[Document]:
    return await asyncio.get_running_loop().run_in_executor(decoder.pool, make)


def _rows(batch: NDArray[np.int64], pad: int, name: str) -> list[Tokens]:
    """Each row without its padding. RequestError when it has no token, or padding before one."""
    real = batch != pad
    lengths = real.sum(axis=1)
    ends = np.where(lengths > 0, batch.shape[1] - np.argmax(real[:, ::-1], axis=1), 0)
    if not lengths.all():
        raise _malformed(f"row {int(np.argmin(lengths))} of {name} is padding alone: send at least one token")
    if (ends != lengths).any():
        row = int(np.flatnonzero(ends != lengths)[0])
        raise _malformed(f"row {row} of {name} has the padding {pad} before a token: fill rows up at their end")
    return [row[:length] for row, length in zip(batch, lengths.tolist(), strict=True)]


def _malformed(message: str) -> RequestError:
    return RequestError(message, "malformed_tensor")
