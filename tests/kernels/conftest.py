"""Kernels are interpreted only in a process that has TRITON_INTERPRET set before triton is imported, and compiled only in
one that has not. `test_in_the_interpreter` starts the first kind; `interpreted/` is collected nowhere else."""

import os

collect_ignore_glob = [] if os.environ.get("TRITON_INTERPRET") == "1" else ["interpreted/*"]
