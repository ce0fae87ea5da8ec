"""A certificate that is renewed on disk is what new connections see after SIGHUP; one that is broken changes nothing."""

import shutil
import signal
import ssl
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import httpx

TLS = Path(__file__).parent / "tls"


def shown(port: int) -> str:
    return ssl.get_server_certificate(("127.0.0.1", port)).strip()


def test_a_renewed_certificate_is_taken_on_sighup(tiny: Path, tmp_path: Path, run_server: Callable[..., Any]) -> None:
    both = tmp_path / "both.pem"
    both.write_text((TLS / "cert.pem").read_text() + (TLS / "key.pem").read_text())
    next_certificate = (TLS / "next.pem").read_text().partition("-----BEGIN PRIVATE")[0].strip()
    with run_server(tiny, options=("--tls-cert", str(both))) as server:
        first = shown(server.port)
        assert first == (TLS / "cert.pem").read_text().strip()
        trusted = ssl.create_default_context(cafile=f"{TLS}/cert.pem")
        with httpx.Client(base_url=server.url, verify=trusted, trust_env=False) as old:
            assert old.get("/v2/health/ready").status_code == 200
            shutil.copy(TLS / "next.pem", both)
            server.process.send_signal(signal.SIGHUP)
            give_up = time.monotonic() + 20
            while shown(server.port) == first and time.monotonic() < give_up:
                time.sleep(0.05)
            assert shown(server.port) == next_certificate
            assert old.get("/v2/health/ready").status_code == 200  # on the connection that it had
        both.write_text("rubbish")
        server.process.send_signal(signal.SIGHUP)
        assert "the certificate stays as it was" in server.process.stderr.readline()
        assert shown(server.port) == next_certificate
