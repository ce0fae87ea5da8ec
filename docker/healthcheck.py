#!/usr/bin/python3
"""The container's HEALTHCHECK: 0 while the server is ready, else 1.

It asks where the environment says that the server listens, so set the port by GAUSSPORT_PORT, not by a flag.
"""

import os
import ssl
import sys
import urllib.request
from http.client import HTTPException

TIMEOUT_S = 2.0


def main() -> int:
    port = os.environ.get("GAUSSPORT_PORT", "8000")
    tls = "GAUSSPORT_TLS_CERT" in os.environ
    context = ssl.create_default_context()
    context.check_hostname = False  # the certificate is for the outside; this connection never leaves the container
    context.verify_mode = ssl.CERT_NONE
    opener = urllib.request.build_opener(urllib.request.ProxyHandler({}), urllib.request.HTTPSHandler(context=context))
    try:
        opener.open(f"{'https' if tls else 'http'}://127.0.0.1:{port}/v2/health/ready", timeout=TIMEOUT_S).close()
    except (OSError, HTTPException) as error:
        print(f"not ready: {error}", file=sys.stderr)  # noqa: T201
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
