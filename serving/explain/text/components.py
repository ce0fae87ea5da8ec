"""What each component of a head takes: which tokens, which passages, and where in a document."""

import heapq
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy.typing import NDArray

from gaussport.serving.explain.layer import Array
from gaussport.serving.explain.operators.latent_memory_routing import RoutingView

TOP = 8
"""Tokens and passages that are named for each component."""
BINS = 20
"""Parts of equal length that a document is cut into, to say where a component reads."""
AROUND = 12
"""Tokens before and after the one that a passage is about."""


@dataclass(order=True, frozen=True)
class Passage:
    """A token of a document with those around it, and the share of it that a component takes."""

    share: float
    text: str
    document: int
    position: int

    def to_json(self, names: Sequence[str]) -> dict[str, Any]:
        return {"text": names[self.document], "position": self.position, "passage": self.text, "share": self.share}


@dataclass
class TokenCensus:
    """One head over some documents: how much of each token each component takes ([vocabulary, K], keys), how often each
    token came, the passages that a component takes most of, and where its queries and keys lie ([2, K, BINS])."""

    components: int
    vocabulary: int
    words: dict[int, str] = field(default_factory=dict)
    """What to call a token; one that is not among them is called by the first text that it stood for."""
    taken: Array = field(init=False)
    seen: NDArray[np.int64] = field(init=False)
    places: Array = field(init=False)
    passages: list[list[Passage]] = field(init=False)

    def __post_init__(self) -> None:
        self.taken = np.zeros((self.vocabulary, self.components))
        self.seen = np.zeros(self.vocabulary, np.int64)
        self.places = np.zeros((2, self.components, BINS))
        self.passages = [[] for _ in range(self.components)]

    def add(self, view: RoutingView, head: int, tokens: NDArray[np.int64], pieces: Sequence[str], document: int) -> None:
        """Count one document."""
        read, write = view.query[:, head], view.key[:, head]
        np.add.at(self.taken, tokens, write)
        self.seen += np.bincount(tokens, minlength=self.vocabulary)
        bins = np.arange(len(tokens)) * BINS // len(tokens)
        for side, shares in enumerate((read, write)):
            np.add.at(self.places[side].T, bins, shares)
        for token, piece in zip(tokens.tolist(), pieces, strict=True):
            self.words.setdefault(token, piece)
        for component, order in enumerate(np.argsort(-write, axis=0, kind="stable")[: 4 * TOP].T):
            self._keep(component, order, write, pieces, document)

    def _keep(self, component: int, order: NDArray[np.int64], write: Array, pieces: Sequence[str], document: int) -> None:
        best = self.passages[component]
        told = {passage.text for passage in best}
        for place in order.tolist():
            text = "".join(pieces[max(0, place - AROUND) : place + AROUND + 1])
            if text in told:
                continue
            told.add(text)
            passage = Passage(float(write[place, component]), text, document, place)
            if len(best) < TOP:
                heapq.heappush(best, passage)
            elif passage.share > best[0].share:
                heapq.heapreplace(best, passage)
            else:
                return

    def to_json(self, names: Sequence[str]) -> dict[str, Any]:
        """`top_tokens` are those that make up most of what a component takes; `lift` is how much more of the token it takes
        than of an average one. `reads` and `writes` are shares by place, which sum to 1 for each component."""
        mass = self.taken.sum(axis=0)
        usage = mass / max(int(self.seen.sum()), 1)
        return {
            "usage": usage.tolist(),
            "top_tokens": [self._tokens(component, mass, usage) for component in range(self.components)],
            "passages": [[p.to_json(names) for p in sorted(best, key=lambda p: -p.share)] for best in self.passages],
            "reads": _shares(self.places[0]),
            "writes": _shares(self.places[1]),
        }

    def _tokens(self, component: int, mass: Array, usage: Array) -> list[dict[str, Any]]:
        taken = self.taken[:, component]
        order = [int(token) for token in np.argsort(-taken, kind="stable")[:TOP] if taken[token] > 0]
        return [
            {
                "token": token,
                "text": self.words.get(token, ""),
                "share": float(taken[token] / mass[component]),
                "lift": float(taken[token] / self.seen[token] / usage[component]),
            }
            for token in order
        ]


def _shares(places: Array) -> list[list[float]]:
    totals = places.sum(axis=1, keepdims=True)
    return np.divide(places, totals, out=np.zeros_like(places), where=totals > 0).tolist()  # type: ignore[no-any-return]
