"""`POST /v1/classify` of a model that reads text: documents to windows, windows to one answer for each document."""

import asyncio
import time
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from fastapi import Request
from numpy.typing import NDArray

from gaussport.errors import GaussportError, TextError
from gaussport.models.text import join
from gaussport.serving.body_limit import whole_body
from gaussport.serving.decoding import Decoder
from gaussport.serving.errors import RequestError
from gaussport.serving.predictions import best, probabilities
from gaussport.serving.presence import while_connected
from gaussport.serving.served_model import ServedModel
from gaussport.serving.text.bodies import Text, texts_of
from gaussport.serving.text.reader import Document, TextReader, Tokens
from gaussport.serving.waiting import Answer

_INLINE_BYTES = 64_000  # fewer bytes become tokens faster than a thread is woken

Outcome = Document | GaussportError


@dataclass(frozen=True)
class Answered:
    """Every document or its error, the probabilities [K] of each that could be read, and where the time went."""

    outcomes: list[Outcome]
    probabilities: list[NDArray[np.float64]]
    read_s: float
    answer: Answer

    def results(self, labels: Sequence[str], top_k: int) -> list[dict[str, Any]]:
        rows = iter(self.probabilities)
        return [
            {"error": {"code": _code(outcome), "message": str(outcome)}}
            if isinstance(outcome, GaussportError)
            else {
                "predictions": best(next(rows), labels, top_k),
                "warnings": list(outcome.warnings),
                "tokens": outcome.tokens,
                "windows": len(outcome.windows),
            }
            for outcome in self.outcomes
        ]


async def classified(
    request: Request, served: ServedModel, decoder: Decoder, deadline: float, urgent: bool, most_texts: int
) -> Answered:
    """The texts of a request's body, classified. Of one text its error is raised; of several each has its own."""
    body = await whole_body(request)
    content_type = request.headers.get("content-type", "")
    work = _classified(content_type, body, served, decoder, deadline, urgent, most_texts)
    return await while_connected(request, work, served.seconds_until(deadline))


async def _classified(
    content_type: str,
    body: bytes,
    served: ServedModel,
    decoder: Decoder,
    deadline: float,
    urgent: bool,
    most_texts: int,
) -> Answered:
    began = time.monotonic()
    reader = served.reader

    def read() -> list[Outcome]:
        return [_read(reader, text) for text in texts_of(content_type, body, most_texts)]

    if len(body) <= _INLINE_BYTES and reader.spec.kind == "bytes":
        outcomes = read()
    else:
        outcomes = await asyncio.get_running_loop().run_in_executor(decoder.pool, read)
    if len(outcomes) == 1 and isinstance(outcomes[0], GaussportError):
        raise outcomes[0]
    read_s = time.monotonic() - began
    documents = [outcome for outcome in outcomes if isinstance(outcome, Document)]
    found, answer = await of_documents(documents, served, deadline, urgent, read_s)
    return Answered(outcomes, found, read_s, answer)


async def of_documents(
    documents: Sequence[Document], served: ServedModel, deadline: float, urgent: bool, read_s: float = 0.0
) -> tuple[list[NDArray[np.float64]], Answer]:
    """The probabilities [K] of each document, its windows' joined."""
    rows = [window for document in documents for window in document.windows]
    if not rows:
        return [], Answer(np.empty((0, len(served.labels)), np.float32), 0.0, 0.0)
    answer = await served.answer_texts(rows, deadline, urgent, read_s)
    of_windows, found, start = probabilities(answer.logits), list[NDArray[np.float64]](), 0
    for document in documents:
        count = len(document.windows)
        found.append(_joined(of_windows[start : start + count], document.windows))
        start += count
    return found, answer


def _joined(of_windows: NDArray[np.float64], windows: Sequence[Tokens]) -> NDArray[np.float64]:
    return of_windows[0] if len(windows) == 1 else join(of_windows, [len(window) for window in windows])


def _read(reader: TextReader, text: Text | GaussportError) -> Outcome:
    if isinstance(text, GaussportError):
        return text
    try:
        return reader.read(text)
    except (TextError, RequestError) as error:
        return error


def _code(error: GaussportError) -> str:
    assert isinstance(error, TextError | RequestError)
    return error.code
