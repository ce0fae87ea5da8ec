"""Memory that a session or a module freed, back to the operating system.

The C library keeps freed pieces for later in an arena of each thread, and every model brings a thread of its own: a server
that reloads often would look as if it leaked, and an export as if it held every form of the model at once.
"""

import ctypes


def give_back_memory() -> None:
    """Does nothing where the C library is not glibc."""
    trim = getattr(ctypes.CDLL(None), "malloc_trim", None)
    if trim is not None:
        trim(0)
