"""The socket that a server listens on, taken before anything is loaded: a port in use is told at once."""

import errno
import logging
import socket
import ssl
import time
from collections.abc import Iterator
from pathlib import Path

from gaussport.errors import ServingError, UsageError

log = logging.getLogger("gaussport.serving")

_PAUSE_S = 0.05  # when there are too many open files: the listener stays readable, and turning in circles helps nobody
BACKLOG = 2048  # connections that wait to be accepted; uvicorn's own default


def listen(host: str, port: int) -> socket.socket:
    """A listening socket, that workers may share.

    It listens here, not when uvicorn starts: two processes may bind one port, and only one of them may listen.
    """
    try:
        found = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE)
    except (socket.gaierror, UnicodeError, OverflowError) as error:
        raise ServingError(f"cannot listen on {host}:{port}: no such address, give another --host or --port") from error
    family, kind, protocol, _, address = found[0]
    listener = socket.socket(family, kind, protocol)
    try:
        listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        listener.bind(address)
        listener.listen(BACKLOG)
    except (OSError, OverflowError) as error:
        listener.close()
        reason = getattr(error, "strerror", None) or str(error)
        raise ServingError(f"cannot listen on {host}:{port}: {reason}; choose another --port, or 0") from error
    return listener


def address_of(host: str, listener: socket.socket, tls: bool) -> str:
    shown = f"[{host}]" if ":" in host else host
    return f"{'https' if tls else 'http'}://{shown}:{listener.getsockname()[1]}"


def check_tls(certificate: Path | None, key: Path | None) -> None:
    """UsageError, before anything is loaded, for files that will not do."""
    if certificate is None:
        return
    try:
        # Never asks for a password on the terminal: a server has none to ask.
        ssl.create_default_context(ssl.Purpose.CLIENT_AUTH).load_cert_chain(certificate, key, password="")
    except ssl.SSLError as error:
        raise UsageError(f"--tls-cert {certificate} and its key cannot be used: {error.reason or error}") from error
    except OSError as error:
        path = error.filename or (key if certificate.is_file() else certificate)
        raise UsageError(f"--tls-cert or --tls-key: {path} cannot be read: {error.strerror}") from error


def accepted(listener: socket.socket, most: int) -> Iterator[socket.socket]:
    """Connections that wait at a listener that does not block, at most so many."""
    for _ in range(most):
        try:
            connection, _ = listener.accept()
        except OSError as error:  # BlockingIOError when there is none left; and what went wrong with one that was there
            if error.errno in (errno.EMFILE, errno.ENFILE):
                log.error("no file descriptor is left for a new connection: raise ulimit -n")
                time.sleep(_PAUSE_S)
            return
        connection.setblocking(False)
        connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        yield connection
