"""Base64 as clients really send it, and nothing else.

Accepted, by choice: plain or in a `data:` URI, with MIME line breaks, with the URL-safe alphabet, with or without
padding. Refused: any other character, for Python's lenient decoder drops those in silence and answers for other bytes.
"""

import binascii
from urllib.parse import unquote_to_bytes

from gaussport.serving.errors import RequestError

_SAME_ALPHABET = bytes.maketrans(b"-_", b"+/")
_LINE_BREAKS = b" \t\r\n"


def picture_bytes(text: str) -> bytes:
    """The bytes of a base64 text or a data URI. RequestError with code `malformed_base64`."""
    if text[:5].lower() == "data:":
        head, comma, text = text.partition(",")
        if not comma:
            raise _malformed("a data URI needs a comma before its data")
        if not head.lower().endswith(";base64"):
            return unquote_to_bytes(text)
    try:
        plain = text.encode("ascii").translate(_SAME_ALPHABET, _LINE_BREAKS).rstrip(b"=")
        return binascii.a2b_base64(plain + b"=" * (-len(plain) % 4), strict_mode=True)
    except UnicodeEncodeError:
        raise _malformed("base64 is ASCII") from None
    except binascii.Error as error:
        raise _malformed(str(error)) from None


def _malformed(reason: str) -> RequestError:
    return RequestError(f"the picture is not base64: {reason}", "malformed_base64")
