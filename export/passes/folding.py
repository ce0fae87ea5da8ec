"""Compute what depends on constants alone, once, at export.

Our own exports come folded; graphs of other people's exporters do not. A result much larger than what it is made of is
left as it is: a folded table of distances is how 210 bytes become 400 MB.
"""

import onnx_graphsurgeon as gs

import gaussport.onnx_runtime  # noqa: F401 - graphsurgeon folds with ONNX Runtime, and must not be the first to import it

LARGEST_BYTES = 1 << 20
"""A folded tensor may take this much, whatever it is made of."""


def fold_constants(graph: gs.Graph) -> None:
    """Replace every node whose inputs are constants by its value, unless that is larger than `LARGEST_BYTES`."""
    graph.fold_constants(size_threshold=LARGEST_BYTES, error_ok=True)
    graph.cleanup().toposort()
