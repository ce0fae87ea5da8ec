"""`gaussport plan MEASURED --target-rps … --p99-ms …`: how many replicas a load needs."""

import argparse
import sys
from pathlib import Path


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("measured", type=Path, metavar="MEASURED", help="file that benchmarks/capacity.py wrote")
    parser.add_argument("--target-rps", type=float, required=True, metavar="N", help="requests a second at the worst moment")
    parser.add_argument("--p99-ms", type=float, required=True, metavar="MS", help="99 of 100 are to be answered within this")
    parser.add_argument("--headroom", type=float, default=0.3, help="part of each replica left free (default: %(default)s)")
    parser.add_argument("--spare", type=int, default=1, metavar="N", help="replicas that may be lost (default: %(default)s)")
    parser.add_argument("--json", action="store_true", help="print the plan as JSON")


def run(arguments: argparse.Namespace) -> int:
    from gaussport.serving.planning import plan, read_measured

    measured = read_measured(arguments.measured)
    found = plan(measured, arguments.target_rps, arguments.p99_ms, arguments.headroom, arguments.spare)
    if arguments.json:
        sys.stdout.write(found.model_dump_json(indent=2) + "\n")
        return 0
    step, cores = found.step, f"{found.cores} core{'s' if found.cores > 1 else ''}"
    sys.stdout.write(
        f"{found.replicas} replicas of {found.model} with {cores} each, {found.spare} of them spare\n"
        f"each answers {found.rps_each:.0f} requests/s; measured: {step.rps:.0f}/s with {step.clients} clients, "
        f"99 % within {step.p99_ms:.0f} ms\n"
        f"autoscaler: add a replica from {found.queue_target} images waiting in each (gaussport_queue_images)\n"
    )
    return 0
