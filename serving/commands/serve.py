"""`gaussport serve BUNDLE…`: answer over HTTP until told to stop."""

import argparse
import os
import sys
from pathlib import Path

_EPILOG = (
    "Every option is also read from the environment, as GAUSSPORT_MAX_BATCH for --max-batch, and from the file of --config, "
    "as max_batch = 8. A flag wins over the environment, the environment over the file. API keys come from the environment "
    "(GAUSSPORT_API_KEYS, separated by commas) or from a file, never from a flag."
)


def add_arguments(parser: argparse.ArgumentParser) -> None:
    from gaussport.serving.setting_sources import add_flags

    parser.add_argument(
        "bundles", nargs="*", type=Path, metavar="BUNDLE", help="bundle folders or zips, or folders of NAME/VERSION/ bundles"
    )
    parser.add_argument("--config", type=Path, metavar="FILE", help="TOML file of settings")
    parser.add_argument("--print-settings", action="store_true", help="show every setting and where it comes from, and end")
    parser.add_argument("--print-ray-config", action="store_true", help="show the file for Ray's serve deploy, and end")
    add_flags(parser)
    parser.epilog = _EPILOG


def run(arguments: argparse.Namespace) -> int:
    from gaussport.errors import UsageError
    from gaussport.serving.setting_sources import read

    sourced = read(arguments)
    if arguments.print_settings:
        sys.stdout.write(sourced.text())
        return 0
    if not arguments.bundles:
        raise UsageError("name at least one bundle, or a folder of NAME/VERSION/ bundles")
    if arguments.print_ray_config:
        from gaussport.serving.cluster.config_file import config_file

        sys.stdout.write(config_file(arguments.bundles, sourced.settings))
        return 0
    os.environ.pop("PROMETHEUS_MULTIPROC_DIR", None)  # another program's; the metrics package looks as it is imported
    from gaussport.serving import logs
    from gaussport.serving.garbage import look_rarely

    look_rarely()
    logs.configure(sourced.settings)
    if sourced.settings.engine == "ray":
        from gaussport.serving.cluster.server import serve_on_ray

        return serve_on_ray(arguments.bundles, sourced.settings, _announce)
    from gaussport.serving.server import serve

    return serve(arguments.bundles, sourced.settings, _announce)


def _announce(line: str) -> None:
    sys.stdout.write(f"{line}\n")
    sys.stdout.flush()
