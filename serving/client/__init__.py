"""A client for `/v1/classify` and `/v1/streams`, blocking or asynchronous: several connections, patient with a full queue,
the server's own words when it refuses.

    with Client("http://127.0.0.1:8000") as client:
        for answer in client.classify(paths):
            ...
"""

from gaussport.serving.client.answers import Classified, RefusedError
from gaussport.serving.client.asynchronous import AsyncClient, AsyncStream
from gaussport.serving.client.blocking import Client, Stream
from gaussport.serving.client.options import Options
from gaussport.serving.client.pictures import read_picture
from gaussport.serving.client.streams import Running

__all__ = [
    "AsyncClient",
    "AsyncStream",
    "Classified",
    "Client",
    "Options",
    "RefusedError",
    "Running",
    "Stream",
    "read_picture",
]
