"""From an HTTP body to its texts: plain, multipart, or in JSON. Which model is asked decides that a body is read here.

What is declared to be text is text: it is decoded as its charset says, UTF-8 if it says nothing, and refused if it is not.
Bytes without a charset, which are `application/octet-stream` and the parts of a form, go to the tokenizer as they are.
"""

import codecs

from multipart import (  # type: ignore[import-untyped]
    MultipartError,
    MultipartSegment,
    PushMultipartParser,
    parse_options_header,
)

from gaussport.errors import GaussportError
from gaussport.serving.errors import RequestError
from gaussport.serving.front_door import json_object

Text = bytes | str
Texts = list[Text | GaussportError]

_PART = "file"
_OTHER_PARTS = 16
"""Form fields beside the texts that a client may send; they are ignored."""
_PICTURES = {b"\xff\xd8\xff": "JPEG", b"\x89PNG\r\n\x1a\n": "PNG"}
"""What begins so is no text in any encoding, whatever it is declared to be."""
_CHARSETS = frozenset({"utf-8", "ascii", "iso8859-1", "cp1252", "utf-16", "utf-16-le", "utf-16-be"})
"""By Python's names. Others are refused: a server that guesses at encodings answers about another text."""


def texts_of(content_type: str, body: bytes, most: int) -> Texts:
    """The texts of a body, in their order; at least one. RequestError when the body as a whole is at fault."""
    if not body:
        raise RequestError("the body is empty: send a text", "empty_body")
    kind = content_type.partition(";")[0].strip().lower()
    texts: Texts
    if kind == "multipart/form-data":
        texts = _from_multipart(content_type, body, most)
    elif kind == "application/json":
        texts = _from_json(body)
    else:
        texts = [document(content_type, body)]
    if len(texts) > most:
        raise RequestError(f"{len(texts)} texts in one request and the limit is {most}", "too_many_texts")
    return texts


def document(content_type: str, body: bytes) -> Text:
    """A body that is one text. RequestError `unsupported_media_type` when it is something else."""
    kind = content_type.partition(";")[0].strip().lower()
    if kind.startswith("text/"):
        return decoded(content_type, body)
    if kind not in ("", "application/octet-stream"):
        what = "is a picture's" if kind.startswith("image/") else "carries no text"
        raise _other(f'this content type {what}, and the model reads text: send text/plain, or {{"text": …}} as JSON')
    _expect_no_picture(body)
    return body


def charset_of(content_type: str) -> str:
    """Python's name of the charset of a text, utf-8 if none is declared. RequestError when it is one that is not read."""
    told = "charset" in content_type.lower()
    name = parse_options_header(content_type)[1].get("charset", "" if told else "utf-8")
    try:
        found = codecs.lookup(name).name
    except (LookupError, ValueError):
        found = ""
    if found not in _CHARSETS:
        raise _other("this charset is not read: send the text as UTF-8")
    return found


def decoded(content_type: str, body: bytes) -> str:
    """A body of text as its charset says. RequestError `invalid_text` when it is not in that charset."""
    charset = charset_of(content_type)
    try:
        return body.decode(charset)
    except UnicodeDecodeError as error:
        raise RequestError(
            f"the text is not {charset} at byte {error.start}: send it as UTF-8, or its bytes as application/octet-stream",
            "invalid_text",
        ) from None


def _from_json(body: bytes) -> Texts:
    content = json_object(body)
    if len(content) != 1 or not content.keys() <= {"text", "texts"}:
        raise RequestError(
            'the model reads text, so the JSON body must be {"text": "…"} or {"texts": ["…", …]}', "malformed_request"
        )
    texts = content["texts"] if "texts" in content else [content["text"]]
    if not isinstance(texts, list) or not texts or not all(isinstance(text, str) for text in texts):
        raise RequestError('"text" must be a text and "texts" a list of at least one', "malformed_request")
    return texts


def _from_multipart(content_type: str, body: bytes, most: int) -> Texts:
    boundary = parse_options_header(content_type)[1].get("boundary")
    if not boundary:
        raise RequestError("the multipart body has no boundary in its Content-Type", "malformed_multipart")
    found: Texts = []
    segment: MultipartSegment | None = None
    pieces: list[bytes] = []
    try:
        with PushMultipartParser(boundary, content_length=len(body), max_segment_count=most + _OTHER_PARTS) as parser:
            for event in parser.parse(body):
                if isinstance(event, MultipartSegment):
                    segment, pieces = event, []
                elif event is not None:
                    pieces.append(bytes(event))
                elif segment is not None and segment.name == _PART:
                    found.append(_part(segment, b"".join(pieces)))
    except (MultipartError, ValueError) as error:
        raise RequestError(f"the multipart body is malformed: {error}", "malformed_multipart") from None
    if not found:
        raise RequestError(f'the multipart body has no part named "{_PART}"', "malformed_multipart")
    return found


def _part(segment: MultipartSegment, content: bytes) -> Text | GaussportError:
    """A part's bytes; decoded where it has a charset. curl declares a type by the file's name, so that is not believed."""
    declared = segment.header("Content-Type") or ""
    try:
        if declared.lower().startswith("image/"):
            raise _other("this part is a picture, and the model reads text: send files of text")
        if "charset" in parse_options_header(declared)[1]:
            return decoded(declared, content)
        _expect_no_picture(content)
    except RequestError as error:
        return error
    return content


def _expect_no_picture(content: bytes) -> None:
    for start, name in _PICTURES.items():
        if content.startswith(start):
            raise _other(f"this is a picture ({name}), and the model reads text: send text, or ask a model of pictures")


def _other(message: str) -> RequestError:
    return RequestError(message, "unsupported_media_type")
