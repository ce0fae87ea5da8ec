"""What a rule answers when it does not match: not yet, or no, and why."""

from gaussport.errors import GaussportError


class NotYet(Exception):  # noqa: N818, an answer, not an error
    """The candidate has not all of the rule's parts; a value further on may."""


class RefusedError(GaussportError):
    """The candidate looks like the operator and is something else. `stage` counts how much of it was right before that, so
    that of several reasons the one that came closest is told."""

    def __init__(self, stage: int, reason: str) -> None:
        super().__init__(reason)
        self.stage = stage
