"""From an HTTP body to the bytes of its pictures: raw, multipart, or base64 in JSON.

File names are never used, declared picture types never believed: the decoder looks at the bytes. A picture that cannot
be had from the body stands in the list as its error, so that the others are answered.
"""

from collections.abc import Iterator

import orjson
from multipart import (  # type: ignore[import-untyped]
    MultipartError,
    MultipartSegment,
    ParserLimitReached,
    PushMultipartParser,
    parse_options_header,
)

from gaussport.errors import GaussportError
from gaussport.serving.base64_text import picture_bytes
from gaussport.serving.errors import RequestError

Pictures = list[bytes | GaussportError]

_PICTURE_STARTS = (b"\xff\xd8\xff", b"\x89PNG", b"RIFF", b"GIF8", b"BM")
_PART = "file"
_OTHER_PARTS = 16
"""Form fields beside the pictures that a client may send; they are ignored."""


def pictures_of(content_type: str, body: bytes, max_images: int) -> Pictures:
    """The pictures of a body, in their order; at least one. RequestError when the body as a whole is at fault."""
    if not body:
        raise RequestError("the body is empty: send a picture", "empty_body")
    kind = content_type.partition(";")[0].strip().lower()
    if kind == "multipart/form-data":
        pictures = _from_multipart(content_type, body, max_images)
    elif kind == "application/json" or (not kind and body.lstrip()[:1] == b"{"):
        pictures = _from_json(body)
    elif kind.startswith("image/") or kind in ("", "application/octet-stream") or body.startswith(_PICTURE_STARTS):
        # curl's --data-binary says application/x-www-form-urlencoded: what starts like a picture is one.
        pictures = [body]
    else:
        raise RequestError(
            "this content type carries no picture: send image/*, multipart/form-data or application/json",
            "unsupported_media_type",
        )
    if len(pictures) > max_images:
        raise RequestError(f"{len(pictures)} pictures in one request and the limit is {max_images}", "too_many_images")
    return pictures


def _from_json(body: bytes) -> Pictures:
    content = json_object(body)
    unknown = [name for name in content if name not in ("image", "images")]
    if unknown or len(content) != 1:
        raise RequestError('the JSON body must be {"image": "<base64>"} or {"images": [...]}', "malformed_request")
    texts = content["images"] if "images" in content else [content["image"]]
    if not isinstance(texts, list) or not texts:
        raise RequestError('"images" must be a list of at least one base64 text', "malformed_request")
    return [_from_text(text) for text in texts]


def json_object(body: bytes | memoryview) -> dict[str, object]:
    """A JSON object; RequestError `malformed_json` for anything else: NaN, deep nesting, broken UTF-8 …"""
    try:
        content = orjson.loads(body)
    except orjson.JSONDecodeError as error:
        raise RequestError(f"the body is not JSON: {error.msg} at byte {error.pos}", "malformed_json") from None
    if not isinstance(content, dict):
        raise RequestError("the JSON body must be an object", "malformed_request")
    return content


def _from_text(text: object) -> bytes | GaussportError:
    if not isinstance(text, str):
        return RequestError("a picture in JSON must be a base64 text", "malformed_base64")
    try:
        return picture_bytes(text)
    except RequestError as error:
        return error


def _from_multipart(content_type: str, body: bytes, max_images: int) -> Pictures:
    boundary = parse_options_header(content_type)[1].get("boundary")
    if not boundary:
        raise RequestError("the multipart body has no boundary in its Content-Type", "malformed_multipart")
    try:
        parts = [data for name, data in _parts(boundary, body, max_images + _OTHER_PARTS) if name == _PART]
    except ParserLimitReached as error:
        limit = f"the multipart body goes beyond a limit ({error})"
        raise RequestError(f'{limit}: send one part named "{_PART}" for each picture', "malformed_multipart") from None
    except (MultipartError, ValueError) as error:
        raise RequestError(f"the multipart body is malformed ({error}): send it whole", "malformed_multipart") from None
    if not parts:
        raise RequestError(f'the multipart body has no part named "{_PART}"', "malformed_multipart")
    return list(parts)


def _parts(boundary: str, body: bytes, most: int) -> Iterator[tuple[str, bytes]]:
    """Name and content of each part."""
    parser = PushMultipartParser(boundary, content_length=len(body), max_segment_count=most)
    name, pieces = "", list[bytes]()
    with parser:
        for event in parser.parse(body):
            if isinstance(event, MultipartSegment):
                name, pieces = event.name, []
            elif event is None:
                yield name, pieces[0] if len(pieces) == 1 else b"".join(pieces)
            else:
                pieces.append(bytes(event))
