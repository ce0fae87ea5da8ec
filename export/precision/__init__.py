"""Precision as a property of the graph: every tensor states its type, and builders and runtimes follow it.

    fp32 graph ──plan──▶ casting | quantization ──▶ typed graph ──emulation──▶ proof
                  ▲                                                    │
                  └────────────── search: which layers to keep ◀───────┘

`formats` are the types, `layers` the names that `--keep-fp32` takes, `census` reads the precision back from a graph.
"""
