"""Finds the operators: every folder beside this file that has a `schema.py`. Adding a folder adds an operator."""

import importlib
from functools import cache
from pathlib import Path

from gaussport.plugins.operator import Operator


@cache
def operators() -> tuple[Operator, ...]:
    """Every operator of this package, by name."""
    folders = sorted(path.parent.name for path in Path(__file__).parent.glob("*/schema.py"))
    return tuple(importlib.import_module(f"gaussport.plugins.{folder}.schema").OPERATOR for folder in folders)
