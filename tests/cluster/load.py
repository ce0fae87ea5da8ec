"""Clients of a cluster under load, and everything that came of their requests."""

import threading
import time
from pathlib import Path

import httpx

from gaussport.serving.client import Client

RESENDS = 3
CLIENTS = 4
KEY = "a-key-of-sixteen"


class Load:
    """Clients that never stop asking, and everything that they were answered."""

    def __init__(self, url: str, pictures: list[Path]) -> None:
        self.url, self.pictures = url, pictures
        self.answers: list[tuple[int, dict[str, float]]] = []
        self.sent = 0
        self.failed: list[BaseException] = []
        self._stop = threading.Event()
        self._threads = [threading.Thread(target=self._ask, args=(number,)) for number in range(CLIENTS)]

    def __enter__(self) -> "Load":
        for thread in self._threads:
            thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._stop.set()
        for thread in self._threads:
            thread.join()

    def _ask(self, number: int) -> None:
        def count(_: httpx.Request) -> None:
            self.sent += 1

        with Client(self.url, connections=1, resend=RESENDS, unreachable_s=20) as client:
            client._http.event_hooks["request"].append(count)
            index = number
            while not self._stop.is_set():
                at = index % len(self.pictures)
                try:
                    [answer] = client.classify([self.pictures[at]])
                    assert answer.error is None, answer.error
                    self.answers.append((at, {each["label"]: each["probability"] for each in answer.predictions}))
                except BaseException as error:  # noqa: BLE001 - whatever it is, the test must see it
                    self.failed.append(error)
                    return
                index += CLIENTS


class Asking:
    """Clients that ask until told to stop, each request with what came of it; 0 is no answer at all."""

    def __init__(self, url: str, pictures: list[Path]) -> None:
        self.outcomes: list[tuple[float, int, dict[str, float], int]] = []
        self._url, self._pictures = url, [path.read_bytes() for path in pictures]
        self._stop = threading.Event()
        self._threads = [threading.Thread(target=self._ask, args=(number,)) for number in range(4)]
        for thread in self._threads:
            thread.start()

    def stop(self) -> None:
        self._stop.set()
        for thread in self._threads:
            thread.join()

    def _ask(self, index: int) -> None:
        with httpx.Client(trust_env=False, timeout=30, headers={"X-API-Key": KEY}) as client:
            while not self._stop.is_set():
                index = (index + 1) % len(self._pictures)
                began, status, found = time.monotonic(), 0, {}
                try:
                    response = client.post(f"{self._url}/v1/classify", content=self._pictures[index])
                    status = response.status_code
                    if status == 200:
                        found = {each["label"]: each["probability"] for each in response.json()["results"][0]["predictions"]}
                except httpx.TransportError:
                    time.sleep(0.02)
                self.outcomes.append((began, status, found, index))
