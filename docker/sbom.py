"""Writes the image's bill of materials (CycloneDX 1.6, JSON): the installed wheels and the Debian packages of the runtime.

    python sbom.py path/to/gaussport/__init__.py /var/lib/dpkg/status > sbom.cdx.json

Run by the interpreter whose packages are to be listed; needs nothing but it.
"""

import json
import re
import sys
from importlib.metadata import Distribution, distributions
from pathlib import Path
from typing import Any
from urllib.parse import quote


def main() -> int:
    init, status = map(Path, sys.argv[1:])
    found = re.search(r'__version__ = "([^"]+)"', init.read_text())
    if found is None:
        raise SystemExit(f"{init} has no __version__")
    purl = f"pkg:pypi/gaussport@{found[1]}"
    ours = {"type": "application", "bom-ref": purl, "name": "gaussport", "version": found[1], "purl": purl,
            "licenses": [{"license": {"id": "Apache-2.0"}}]}  # fmt: skip
    listed = {component["purl"]: component for component in map(_wheel, distributions()) if component["name"] != "gaussport"}
    wheels = sorted(listed.values(), key=_name)
    document = {
        "bomFormat": "CycloneDX",
        "specVersion": "1.6",
        "version": 1,
        "metadata": {"component": ours},
        "components": [*wheels, *sorted(_debian(status.read_text()), key=_name)],
    }
    json.dump(document, sys.stdout, indent=1)
    return 0


def _name(component: dict[str, Any]) -> str:
    return str(component["name"])


def _wheel(package: Distribution) -> dict[str, Any]:
    name = re.sub(r"[-_.]+", "-", package.metadata["Name"]).lower()
    purl = f"pkg:pypi/{name}@{package.version}"
    component = {"type": "library", "bom-ref": purl, "name": name, "version": package.version, "purl": purl}
    expressions = package.metadata.get_all("License-Expression") or []
    return {**component, "licenses": [{"expression": each} for each in expressions]} if expressions else component


def _debian(status: str) -> list[dict[str, Any]]:
    """The installed packages of a dpkg status file: paragraphs of `Key: value`, long values continued on indented lines."""
    components = []
    for paragraph in status.split("\n\n"):
        keys = dict(line.split(": ", 1) for line in paragraph.splitlines() if re.match(r"[A-Za-z-]+: ", line))
        if keys.get("Status") != "install ok installed":
            continue
        name, version, architecture = keys["Package"], keys["Version"], keys["Architecture"]
        purl = f"pkg:deb/debian/{name}@{quote(version, safe='')}?arch={architecture}&distro=bookworm"
        components.append({"type": "library", "bom-ref": purl, "name": name, "version": version, "purl": purl})
    return components


if __name__ == "__main__":
    sys.exit(main())
