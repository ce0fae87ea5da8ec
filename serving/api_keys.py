"""Who may call: clients that send one of the operator's keys, as `Authorization: Bearer KEY` or `X-API-Key: KEY`.

Health and metrics answer without a key, because probes and scrapers have none and learn nothing from them that is secret.
"""

import hashlib
import hmac
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from starlette.datastructures import Headers
from starlette.types import ASGIApp, Receive, Scope, Send

from gaussport.errors import UsageError
from gaussport.serving.errors import count_as, error_response

OPEN_PATHS = ("/", "/v2/health/live", "/v2/health/ready", "/metrics")
_LEAST_LENGTH = 16


class ApiKeys:
    """Hashes of the keys in force. No keys at all lets everybody in."""

    def __init__(self, keys: Sequence[str], file: Path | None) -> None:
        self._keys, self._file = keys, file
        self._hashes: list[bytes] = []
        self.read()

    @property
    def required(self) -> bool:
        return bool(self._hashes)

    def read(self) -> None:
        """Read the file again. UsageError, and the keys stay as they were, when it cannot be used."""
        keys = [*self._keys, *(_lines(self._file) if self._file else ())]
        if any(len(key) < _LEAST_LENGTH or not key.isascii() for key in keys):
            raise UsageError(f"an API key is shorter than {_LEAST_LENGTH} characters or not ASCII: make longer, random ones")
        if self._file and not keys:
            raise UsageError(f"{self._file} has no API keys: write one a line, or leave --api-keys-file out")
        self._hashes = [_hash(key) for key in keys]

    def admit(self, key: str) -> bool:
        """Whether this is one of the keys, in a time that tells nothing about them."""
        found = _hash(key)
        admitted = False
        for known in self._hashes:
            admitted |= hmac.compare_digest(found, known)
        return admitted


@dataclass(frozen=True)
class RequireKey:
    """Middleware that answers 401 before anything of the body is read."""

    app: ASGIApp
    keys: ApiKeys

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] == "lifespan" or not self.keys.required or scope["path"] in OPEN_PATHS or self._admits(scope):
            await self.app(scope, receive, send)
            return
        count_as(scope, "unauthorized")
        message = "this server wants an API key: send it as Authorization: Bearer KEY, or as X-API-Key"
        headers = {"WWW-Authenticate": "Bearer"}
        response = error_response(message, "unauthorized", str(scope.get("gaussport.request_id", "")), headers=headers)
        await response(scope, receive, send)

    def _admits(self, scope: Scope) -> bool:
        headers = Headers(scope=scope)
        kind, _, key = headers.get("authorization", "").partition(" ")
        if kind.lower() != "bearer":
            key = headers.get("x-api-key", "")
        return bool(key) and self.keys.admit(key.strip())


def _hash(key: str) -> bytes:
    return hashlib.sha256(key.encode("utf-8", "surrogateescape")).digest()


def _lines(file: Path) -> list[str]:
    try:
        lines = file.read_text("utf-8").splitlines()
    except (OSError, UnicodeDecodeError) as error:
        reason = getattr(error, "strerror", None) or "it is not text"
        raise UsageError(f"the API keys in {file} cannot be read: {reason}") from error
    return [line.strip() for line in lines if line.strip() and not line.lstrip().startswith("#")]
