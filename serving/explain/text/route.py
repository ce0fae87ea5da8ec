"""`POST /v1/explain` of a model that reads text: one text's body to its explanation as JSON."""

from typing import Any

from fastapi import Request

from gaussport.errors import GaussportError
from gaussport.serving.body_limit import whole_body
from gaussport.serving.errors import RequestError
from gaussport.serving.explain.query import ExplainQuery
from gaussport.serving.explain.queue import ExplainQueue
from gaussport.serving.explain.text.answer import MOST_TOKENS, explained
from gaussport.serving.presence import while_connected
from gaussport.serving.served_model import ServedModel
from gaussport.serving.text.bodies import texts_of


async def explained_body(
    request: Request, served: ServedModel, queue: ExplainQueue, query: ExplainQuery, deadline: float
) -> dict[str, Any]:
    """What is said of the text in the body. Raises as `explained`, and a RequestError for a body that is not one text."""
    if query.format == "png" or query.seen or query.selection.cell is not None:
        raise RequestError("format=png, seen and cell are of pictures: a text is explained as JSON", "bad_parameter")
    (text,) = texts_of(request.headers.get("content-type", ""), await whole_body(request), 1)
    if isinstance(text, GaussportError):
        raise text
    reader = served.reader
    document = reader.read(text)
    if document.tokens > MOST_TOKENS:
        raise RequestError(
            f"the text has {document.tokens:,} tokens and {MOST_TOKENS:,} can be explained here: send less of it",
            "text_too_long",
        )
    work = queue.run(served, lambda explainer: explained(explainer, text, query, reader.folder))
    content = await while_connected(request, work, served.seconds_until(deadline))
    return {"warnings": list(document.warnings), **content}
