"""The graph of imports between our own files, computed from their syntax trees."""

from __future__ import annotations

import ast
import gc
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from functools import cache
from pathlib import Path

import networkx as nx

from folders import HELPERS, PROGRAMS, ROOT

LAYERS = ("specs", "planner", "executors", "collplan")


def sources(layer: str) -> list[Path]:
    """Return the files of a layer; `collplan` links the others, which are not its own."""
    links = [ROOT / "collplan" / other for other in LAYERS[:-1]]
    files = sorted((ROOT / layer).rglob("*.py"))
    own = [path for path in files if not any(link in path.parents for link in links)]
    assert own
    return own


def place(path: Path) -> tuple[str, ...]:
    """Return a file's place: its layer, its folders and its name, without the suffix."""
    return path.relative_to(ROOT).with_suffix("").parts


@dataclass(frozen=True)
class Function:
    """A function as its definition shows it."""

    name: str
    n_lines: int
    n_parameters: int
    is_compiled: bool


@dataclass(frozen=True)
class Contents:
    """Imports anywhere in a file, with the names taken from each module, and its functions."""

    imports: tuple[tuple[str, tuple[str, ...]], ...]
    functions: tuple[Function, ...]


def syntax_nodes(source: str) -> Iterator[ast.AST]:
    """Yield all nodes of the syntax tree of a source."""
    with _no_search_for_garbage():
        tree = ast.parse(source)
    yield from ast.walk(tree)


@contextmanager
def _no_search_for_garbage() -> Iterator[None]:
    """Let a tree grow without searches for garbage, which take longer than the parser."""
    was_enabled = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if was_enabled:
            gc.enable()


@cache
def contents(path: Path) -> Contents:
    """Return what tests ask about a file; it is parsed once."""
    imports: list[tuple[str, tuple[str, ...]]] = []
    functions = []
    for node in syntax_nodes(path.read_text()):
        if isinstance(node, ast.Import):
            imports += [(alias.name, ()) for alias in node.names]
        elif isinstance(node, ast.ImportFrom):
            assert node.level == 0, f"{path} imports relatively"
            imports.append((node.module or "", tuple(alias.name for alias in node.names)))
        elif isinstance(node, ast.FunctionDef):
            functions.append(
                Function(
                    node.name,
                    (node.end_lineno or 0) - node.lineno + 1,
                    len(node.args.args),
                    any("compile" in ast.unparse(one) for one in node.decorator_list),
                )
            )
    return Contents(tuple(imports), tuple(functions))


@cache
def import_graph() -> nx.DiGraph:
    """Return the graph of all files: an edge leads from one to each that it imports.

    Callers share it and do not change it.

    Imports inside functions and those for type checkers count, too. A name
    that is a module of its own is imported from its file, not from its package.
    """
    files = {place(path): path for layer in LAYERS for path in sources(layer)}
    graph = nx.DiGraph()
    graph.add_nodes_from(files)
    for one, path in files.items():
        for module, names in contents(path).imports:
            for name in names or ("",):
                other = _find(files, module, name)
                if other not in (None, one):
                    graph.add_edge(one, other)
    return graph


def graph_with_tests() -> nx.DiGraph:
    """Return the graph of all files with tests, their helpers, and the programs that they name."""
    graph = import_graph().copy()
    files = {place(path): path for layer in LAYERS for path in sources(layer)}
    helpers = {path.stem: place(path) for path in HELPERS.glob("*.py")}
    programs = {path.name: place(path) for path in PROGRAMS.glob("*.py")}
    for path in sorted((ROOT / "tests").rglob("*.py")):
        text = path.read_text()
        others = {one for name, one in programs.items() if f'"{name}' in text}
        for module, names in contents(path).imports:
            others.add(helpers.get(module) or ())
            others |= {_find(files, module, name) or () for name in names or ("",)}
        graph.add_edges_from((place(path), other) for other in others - {(), place(path)})
    return graph


def _find(files: dict[tuple[str, ...], Path], module: str, name: str) -> tuple[str, ...] | None:
    parts = module.split(".")
    if parts[0] != "collplan":
        return None
    if (len(parts) > 1 and parts[1] in LAYERS) or (not parts[1:] and name in LAYERS):
        parts = parts[1:]
    for found in ([*parts, name], [*parts, name, "__init__"], parts, [*parts, "__init__"]):
        if tuple(found) in files:
            return tuple(found)
    return None


def folder_graphs(graph: nx.DiGraph) -> dict[str, nx.DiGraph]:
    """Return for each folder the graph of what lies in it: its files, and folders as one node.

    An edge joins the two entries in which the places of a file and of one
    that it imports begin to differ.
    """
    found: dict[str, nx.DiGraph] = {}
    for one, other in graph.edges:
        depth = 0
        while one[depth] == other[depth]:
            depth += 1
        folder = "/".join(one[:depth]) or "."
        found.setdefault(folder, nx.DiGraph()).add_edge(one[depth], other[depth])
    return found


def circles(graph: nx.DiGraph) -> list[list[str]]:
    """Return all sets of nodes that can reach each other, sorted; none where there is no circle."""
    parts = [part for part in nx.strongly_connected_components(graph) if len(part) > 1]
    return sorted(sorted("/".join(n) if isinstance(n, tuple) else n for n in p) for p in parts)


def rooms(graph: nx.DiGraph) -> nx.DiGraph:
    """Return the graph of layers' folders, without edges that follow from others.

    Files that lie loose in a layer stand for the layer itself.
    """
    found = nx.DiGraph()
    names = {one: "/".join(one[: 2 if len(one) > 2 else 1]) for one in graph}
    edges = {(names[one], names[other]) for one, other in graph.edges}
    loose = set(LAYERS) & set(names.values())
    found.add_nodes_from(set(names.values()) - loose)
    found.add_edges_from((a, b) for a, b in edges if a != b and not {a, b} & loose)
    return nx.transitive_reduction(found)


def mermaid(graph: nx.DiGraph) -> str:
    """Return a graph of rooms as a Mermaid diagram; arrows lead to what is imported."""
    lines = ["graph TD"]
    for layer in reversed(LAYERS):
        inside = sorted(node for node in graph if node.startswith(f"{layer}/"))
        if inside:
            lines.append(f"  subgraph {layer}")
            lines += [f"    {node.replace('/', '_')}[{node.split('/')[1]}]" for node in inside]
            lines.append("  end")
    lines += [f"  {a.replace('/', '_')} --> {b.replace('/', '_')}" for a, b in sorted(graph.edges)]
    return "\n".join(lines)
