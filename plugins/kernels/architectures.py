"""The GPU architectures that kernels are compiled for, and the limits that differ between them."""

SHARED_LIMIT_BYTES = {80: 163 << 10, 86: 99 << 10, 89: 99 << 10, 90: 227 << 10, 100: 227 << 10, 120: 99 << 10}
"""Shared memory that one program may have, by compute capability (CUDA programming guide, technical specifications)."""

ARCHITECTURES = tuple(SHARED_LIMIT_BYTES)
"""A100 · A10, RTX 30 · L4, RTX 40 · H100, H200 · B200 · RTX 50."""

LEAST_SHARED_LIMIT_BYTES = min(SHARED_LIMIT_BYTES.values())
"""Tiles that fit here fit everywhere."""

PORTABLE_PTX = {80: 80, 86: 80, 89: 80, 90: 80}
"""PTX version by architecture, where an old one suffices: drivers since CUDA 12.0 load 8.0. Blackwell needs Triton's own."""

FALLBACK_PTX_ARCHITECTURE = 89
"""Whose PTX a GPU that has no cubin should be given, if it is newer: from 90 on Triton's PTX is for that one architecture
(sm_90a, sm_100a, sm_120a) and no other loads it. Plan for `LEAST_SHARED_LIMIT_BYTES` with it."""
