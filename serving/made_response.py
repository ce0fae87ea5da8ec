"""A response of bytes that are made, with headers that are bytes already."""

from collections.abc import Sequence

from fastapi.responses import Response


class MadeResponse(Response):
    """Status 200. Header names are in lower case."""

    def __init__(self, content: bytes, media_type: bytes, headers: Sequence[tuple[bytes, bytes]] = ()) -> None:
        self.status_code, self.body, self.background = 200, content, None
        self.raw_headers = [(b"content-length", b"%d" % len(content)), (b"content-type", media_type), *headers]
