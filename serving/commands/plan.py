"""`gaussport plan MEASURED …`: how many replicas a load needs, or how many machines and hours a million pictures."""

import argparse
import sys
from pathlib import Path


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "measured",
        type=Path,
        metavar="MEASURED",
        help="what benchmarks/capacity.py wrote; with --images what classify --json said",
    )
    parser.add_argument("--target-rps", type=float, metavar="N", help="requests a second at the worst moment")
    parser.add_argument("--p99-ms", type=float, metavar="MS", help="99 of 100 are to be answered within this")
    parser.add_argument("--spare", type=int, default=1, metavar="N", help="replicas that may be lost (default: %(default)s)")
    parser.add_argument("--images", type=float, metavar="N", help="pictures to classify without a server, as 1e6")
    parser.add_argument("--within-h", type=float, metavar="HOURS", help="how long that may take (default: on one machine)")
    parser.add_argument(
        "--headroom", type=float, default=0.3, help="part of the measured rate left free (default: %(default)s)"
    )
    parser.add_argument("--json", action="store_true", help="print the plan as JSON")


def run(arguments: argparse.Namespace) -> int:
    from gaussport.errors import UsageError

    served = arguments.target_rps is not None and arguments.p99_ms is not None
    if served == (arguments.images is not None):
        raise UsageError("give a load by --target-rps and --p99-ms, or a job by --images")
    return _replicas(arguments) if served else _machines(arguments)


def _replicas(arguments: argparse.Namespace) -> int:
    from gaussport.serving.planning import plan, read_measured

    measured = read_measured(arguments.measured)
    found = plan(measured, arguments.target_rps, arguments.p99_ms, arguments.headroom, arguments.spare)
    if arguments.json:
        sys.stdout.write(found.model_dump_json(indent=2) + "\n")
        return 0
    step = found.step
    sys.stdout.write(
        f"{found.replicas} replicas of {found.model} with {_cores(found.cores)} each, {found.spare} of them spare\n"
        f"each answers {found.rps_each:.0f} requests/s; measured: {step.rps:.0f}/s with {step.clients} clients, "
        f"99 % within {step.p99_ms:.0f} ms\n"
        f"autoscaler: add a replica from {found.queue_target} images waiting in each (gaussport_queue_images)\n"
    )
    return 0


def _machines(arguments: argparse.Namespace) -> int:
    from gaussport.serving.job_planning import plan_job, read_measured

    found = plan_job(read_measured(arguments.measured), arguments.images, arguments.within_h, arguments.headroom)
    if arguments.json:
        sys.stdout.write(found.model_dump_json(indent=2) + "\n")
        return 0
    machines = "one machine" if found.machines == 1 else f"{found.machines} machines"
    sys.stdout.write(
        f"{found.images:,} pictures with {found.model}: {_duration(found.seconds)} on {machines} with {_cores(found.cores)}"
        "\n"
        f"measured: {found.rate:.0f} pictures/s on each, so {found.core_hours:.3g} core hours of work\n"
    )
    return 0


def _cores(count: int) -> str:
    return f"{count} core{'s' if count > 1 else ''}"


def _duration(seconds: float) -> str:
    minutes = round(seconds / 60)
    return f"{seconds:.0f} s" if seconds < 120 else f"{minutes} min" if minutes < 120 else f"{seconds / 3600:.1f} h"
