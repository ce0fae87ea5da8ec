"""How a client reaches its server and how long it insists."""

import ssl
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import httpx

from gaussport.errors import ServingError

_LOCAL_HOSTS = {"localhost", "127.0.0.1", "::1", "[::1]"}


@dataclass(frozen=True, kw_only=True)
class Options:
    """What a client is told beside the address."""

    connections: int = 4
    """Requests at once."""
    timeout_s: float = 60.0
    """How long each step of a request may take: connecting, sending, waiting for the answer."""
    patience_s: float = 60.0
    """How long a picture is offered again while the server has no room or is restarting (429, 503)."""
    unreachable_s: float = 2.0
    """The same while nobody listens: a server that is restarted is back in that time, one that is not there is told soon."""
    resend: int = 0
    """How often a request is sent again whose server was lost while it had it. For clusters, where machines go: a request
    changes nothing there, so that asking twice costs an inference and no more."""
    api_key: str | None = None
    ca: Path | None = None
    """Certificates (PEM) to trust instead of the system's."""

    def http(self, url: str) -> dict[str, Any]:
        """Arguments of httpx.Client or httpx.AsyncClient. ServingError when the address or the certificates are none."""
        try:
            base = httpx.URL(url if "://" in url else f"http://{url}")
        except httpx.InvalidURL as error:
            raise ServingError(f"{url} is not an address: give one like http://127.0.0.1:8000") from error
        return {
            "base_url": base,
            "timeout": self.timeout_s,
            "limits": httpx.Limits(max_connections=self.connections, max_keepalive_connections=self.connections),
            "headers": {} if self.api_key is None else {"Authorization": f"Bearer {_sendable(self.api_key)}"},
            "verify": self._trusted(),
            # A proxy from the environment must not stand between a client and its own machine.
            "trust_env": base.host not in _LOCAL_HOSTS,
        }

    def _trusted(self) -> ssl.SSLContext | bool:
        if self.ca is None:
            return True
        try:
            return ssl.create_default_context(cafile=self.ca)
        except OSError as error:  # SSLError is one
            raise ServingError(f"{self.ca} cannot be read as certificates: give a PEM file") from error


def _sendable(key: str) -> str:
    if not (key.isascii() and key.isprintable() and key):
        raise ServingError("the API key has characters that no header can carry: give printable ASCII")
    return key
