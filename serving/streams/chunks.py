"""A piece of a stream as its tokens. A chunk may end anywhere, in the middle of a character too."""

from typing import Any

import numpy as np
from numpy.typing import NDArray

from gaussport.errors import TextError
from gaussport.serving.errors import RequestError
from gaussport.serving.front_door import json_object
from gaussport.serving.text.bodies import charset_of
from gaussport.serving.text.reader import TextReader

Tokens = NDArray[np.int64]


def tokens_of(content_type: str, body: bytes, reader: TextReader) -> Tokens:
    """The tokens of a chunk's body: UTF-8 text or bytes as they are, or JSON `{"text": "…"}` or `{"tokens": […]}`.

    Raises:
        RequestError: the body is none of these, or empty, or too long.
        TextError: the text is empty.
    """
    if not body:
        raise RequestError("the chunk is empty: send a piece of text", "empty_body")
    kind = content_type.partition(";")[0].strip().lower()
    if kind == "application/json":
        return _from_json(body, reader)
    if kind.startswith("text/"):
        if charset_of(content_type) not in ("utf-8", "ascii"):
            raise RequestError("a chunk of text is read as UTF-8 only: a character may go on in the next", _UNSUPPORTED)
    elif kind not in ("", "application/octet-stream"):
        raise RequestError(
            "this content type carries no chunk: send text/plain, application/octet-stream or application/json", _UNSUPPORTED
        )
    return tokens_of_piece(body, reader)


def tokens_of_piece(piece: bytes | str, reader: TextReader) -> Tokens:
    """The tokens of a piece of text. Raises as `tokens_of`."""
    if reader.spec.kind != "bytes":
        raise RequestError(
            'the tokens of this model reach over the ends of chunks: send them yourself, as JSON {"tokens": […]}',
            "malformed_request",
        )
    return reader.tokens(piece)


def _from_json(body: bytes, reader: TextReader) -> Tokens:
    content = json_object(body)
    if len(content) != 1 or not content.keys() <= {"text", "tokens"}:
        raise RequestError('the JSON body must be {"text": "…"} or {"tokens": […]}', "malformed_request")
    if "tokens" in content:
        return _given(content["tokens"], reader)
    text = content["text"]
    if not isinstance(text, str):
        raise RequestError('"text" must be a text', "malformed_request")
    return tokens_of_piece(text, reader)


def _given(tokens: Any, reader: TextReader) -> Tokens:
    spec = reader.spec
    if not isinstance(tokens, list) or not tokens:
        raise TextError('"tokens" must be a list of at least one token', "empty_text")
    if not all(type(token) is int and 0 <= token < spec.vocabulary and token != spec.pad for token in tokens):
        raise RequestError(
            f"tokens must be whole numbers from 0 to {spec.vocabulary - 1}, and none the padding {spec.pad}",
            "malformed_request",
        )
    reader.expect_fits(len(tokens))
    return np.array(tokens, dtype=np.int64)


_UNSUPPORTED = "unsupported_media_type"
