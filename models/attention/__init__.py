"""The attention families. A family is one module here: its configuration, its `nn.Module`, and `FAMILY` that names both.

Finding families by their module keeps the rest of the house free of lists: a new operator's module is all it takes.
"""

import importlib
from functools import cache
from pathlib import Path
from types import MappingProxyType

from gaussport.models.attention.family import AttentionConfig, Family, Interpretable

__all__ = ["AttentionConfig", "Family", "Interpretable", "families"]


@cache
def families() -> MappingProxyType[str, Family]:
    """Every attention family by its name: `ssog`, `gma`, `dot`."""
    modules = sorted(path.stem for path in Path(__file__).parent.glob("[!_]*.py") if path.stem != "family")
    found = (importlib.import_module(f"gaussport.models.attention.{module}").FAMILY for module in modules)
    return MappingProxyType({family.name: family for family in found})
