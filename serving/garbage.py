"""Python's collector of cycles, told that a server's memory is mostly there to stay and its requests make no cycles."""

import gc

_NEW_OBJECTS = 20_000
"""After so many more of them than were freed the youngest are looked at; Python's own 700 are there after a few requests."""

_OF_REQUESTS = 5_000
"""A client that hangs up leaves a cycle: an exception, its frames, and the body and connection that they hold. What is left
to look at beside such is little, so that even the oldest are looked at often."""


def look_rarely() -> None:
    """Call this before packages are imported: what they make is there to stay, and looking at it takes a tenth of that."""
    gc.set_threshold(_NEW_OBJECTS, 10, 10)


def expect_little_garbage() -> None:
    """Call this when the models are loaded: modules, sessions and routes are never looked at again."""
    gc.collect()
    gc.freeze()
    gc.set_threshold(_OF_REQUESTS, 2, 2)
