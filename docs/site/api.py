"""Pages of the reference for Python; mkdocstrings fills them with signatures and docstrings."""

from __future__ import annotations

import ast
import doctest
import inspect
import re
from collections.abc import Iterable, Iterator
from importlib import import_module
from pathlib import Path
from typing import Final

import collplan
from collplan.planner.passes.registry import pass_registry

ROOT: Final = Path(__file__).resolve().parents[2]
_PYTHON: Final = re.compile(r"^```python\n(.*?)^```$", re.DOTALL | re.MULTILINE)
FRONT: Final = """# The package collplan

These names are all that most programs need. `import collplan` imports none of their modules; a
module is imported when its first name is used. Only `bind`, `Comm` and what they return need MPI.
"""
RETURNED: Final = """# Objects that functions return

Functions of the package return these objects, and take some of them. Programs need not import their
classes.
"""
RETURNED_CLASSES: Final = (
    "collplan.executors.mpi.binding.bound_plan.BoundPlan",
    "collplan.executors.cost.simulator.Timeline",
    "collplan.planner.plan.plan.Task",
    "collplan.planner.plan.plan.Extent",
    "collplan.planner.plan.plan.Op",
    "collplan.planner.plan.plan.Stage",
    "collplan.planner.plan.phases.Phase",
    "collplan.tables.table.TuningTable",
)
EXTENDING: Final = """# Extending collplan

Algorithms, collectives and passes of your own use these names. The
[how-to guide](../../how-to/write-an-algorithm.md) has a first algorithm, and
[the algorithms](../../algorithms.md#write-your-own-algorithm) explains the rules.
"""
MORE: Final = """# More of the library

Pages of this site use these names for special purposes, such as sweeps, bounds and traces.
"""
PASSES: Final = """# The passes

A pass rewrites a plan. Passes are listed under `passes` in a spec, and run in that order. The
parameters after the plan are the options of the pass: `segment` with `max_bytes` is written
`{name: segment, max_bytes: 64KiB}`. [Write your own pass](../algorithms.md#write-your-own-pass)
explains how to add one.
"""


def public_names() -> dict[str, str]:
    """Return the public names of the package, each with the object that it stands for."""
    return {f"collplan.{name}": home for name, home in collplan._HOMES.items()}


def imported_names(sources: Iterable[str]) -> set[str]:
    """Return the full names of what Python sources import from the package's modules."""
    found = set()
    for source in sources:
        for node in ast.walk(ast.parse(source)):
            if isinstance(node, ast.ImportFrom) and (node.module or "").startswith("collplan."):
                found |= {home_of(f"{node.module}.{name.name}") for name in node.names}
    return found - set(public_names().values())


def home_of(name: str) -> str:
    """Return a full name with the module in which the object is defined, where it knows that."""
    module, _, last = name.rpartition(".")
    value = getattr(import_module(module), last)
    home = getattr(value, "__module__", None)
    is_named = home is not None and getattr(value, "__qualname__", None) == last
    return f"{home}.{last}" if is_named else name


def example_sources() -> list[str]:
    """Return the sources of all examples."""
    return [path.read_text() for path in sorted((ROOT / "examples").glob("*.py"))]


def block_sources() -> Iterator[str]:
    """Generate the Python of every page, without what it prints."""
    parser = doctest.DocTestParser()
    for page in sorted((ROOT / "docs").rglob("*.md")):
        for block in _PYTHON.findall(page.read_text()):
            if ">>> " in block:
                yield "".join(example.source for example in parser.get_examples(block))


def python_pages() -> Iterator[tuple[str, str]]:
    """Generate the name and the text of each page of the reference for Python."""
    extending = imported_names(example_sources()) - {*RETURNED_CLASSES}
    more = imported_names(block_sources()) - {*RETURNED_CLASSES, *extending}
    yield "collplan", FRONT + "".join(entry(home, name) for name, home in public_names().items())
    yield "returned", RETURNED + "".join(map(entry, RETURNED_CLASSES))
    yield "extending", EXTENDING + "".join(map(entry, sorted(extending)))
    yield "more", MORE + "".join(map(entry, sorted(more)))


def passes_page() -> str:
    """Return the page of all passes."""
    entries = []
    for name in sorted(pass_registry):
        run = inspect.unwrap(pass_registry[name].rewrite)
        entries.append(entry(f"{run.__module__}.{run.__qualname__}", name))
    return PASSES + "".join(entries)


def entry(home: str, name: str | None = None) -> str:
    """Return the Markdown that documents an object, under another name where one is given."""
    heading = name or home
    return f'\n::: {home}\n    options:\n      heading: "{heading}"\n      toc_label: "{heading}"\n'
