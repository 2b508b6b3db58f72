"""Machines known by name, each described by a YAML file that names its source."""

from __future__ import annotations

from functools import cache
from importlib import resources
from typing import Any

from collplan.specs.errors import show_value, suggest
from collplan.specs.syntax.documents import parse_yaml


@cache
def preset_names() -> tuple[str, ...]:
    """Return the names of all presets, sorted.

    Examples
    --------
    >>> "hydra" in preset_names()
    True
    """
    files = resources.files(__name__).iterdir()
    return tuple(sorted(file.name[:-5] for file in files if file.name.endswith(".yaml")))


def load_preset(name: object) -> dict[str, Any]:
    """Return the fields of a preset.

    Raises
    ------
    ValueError
        If no preset has this name.
    """
    if not isinstance(name, str) or name not in preset_names():
        hint = suggest(str(name), preset_names())
        raise ValueError(
            f"{show_value(name)} is not a preset; {hint}valid: {', '.join(preset_names())}"
        )
    text = (resources.files(__name__) / f"{name}.yaml").read_text(encoding="utf-8")
    fields = parse_yaml(text, f"preset {name}")
    assert isinstance(fields, dict)
    return fields
