"""A bundle in a process of its own, from the start of Python to the first answer: what a worker costs before it works.

    python -m gaussport.serving.bench.fresh BUNDLE PROVIDER THREADS STARTED

STARTED is the clock when the process was asked for. Prints a `Start` as JSON.
"""

import resource
import sys
import time
from pathlib import Path


def main() -> None:
    from gaussport.export.bundle.store import open_bundle
    from gaussport.serving.bench.document import Start
    from gaussport.serving.bench.session import random_rows
    from gaussport.serving.runtime import Runtime

    path, provider, threads, started = sys.argv[1:]
    bundle = open_bundle(Path(path), check_hashes=False)
    before_mb = resident_mb()
    runtime = Runtime(bundle, provider, int(threads))
    ready_s = time.time() - float(started)
    runtime.run(random_rows(bundle.manifest, 1))
    first_s = time.time() - float(started)
    start = Start(ready_s=ready_s, first_answer_s=first_s, before_mb=before_mb, loaded_mb=resident_mb(), peak_mb=peak_mb())
    sys.stdout.write(start.model_dump_json())


def resident_mb() -> float:
    """Megabytes in memory now."""
    pages = int(Path("/proc/self/statm").read_text().split()[1])
    return pages * resource.getpagesize() / 1e6


def peak_mb() -> float:
    """Most megabytes that were in memory at once."""
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024 / 1e6


if __name__ == "__main__":
    main()
