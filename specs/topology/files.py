"""Read graphs of hosts and switches from files, and open the files that a machine names."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from collplan.specs.errors import SpecError, show_value
from collplan.specs.syntax.documents import Limits, foreign_reader, read_document
from collplan.specs.syntax.numbers import MAX_NS, MAX_RATE, write_rate
from collplan.specs.topology.conf import read_switches

if TYPE_CHECKING:
    import networkx

_LIMITS: Final = Limits(2**26, 10**7)
_FORMS: Final = "give a .graphml file, or a .json file with nodes and links, or with routes"
_RATE_BITS: Final = 8
_MAX_BYTES_PER_S: Final = MAX_RATE // _RATE_BITS
_MAX_LATENCY_S: Final = MAX_NS // 10**9


def open_topology(spec: Path, machine: Any) -> Any:
    """Return the fields of a machine, with graphs and switches read from the files it names.

    Parameters
    ----------
    spec : Path
        File of the spec; paths in it are relative to its folder.
    machine : object
        The machine as written in that file.

    Raises
    ------
    SpecError
        If a file cannot be read, or is not a graph or ``topology.conf``.
    """
    if not isinstance(machine, Mapping):
        return machine
    opened = dict(machine)
    network = machine.get("network")
    topology = network.get("topology") if isinstance(network, Mapping) else None
    if isinstance(network, Mapping) and isinstance(topology, Mapping) and "file" in topology:
        fields = {key: value for key, value in topology.items() if key != "file"}
        graph = read_graph(spec.parent / _name(topology["file"], f"{spec}: topology.file"))
        opened["network"] = {**network, "topology": {"kind": "graph", **graph, **fields}}
    placement = machine.get("placement")
    if isinstance(placement, Mapping) and "topology_conf" in placement:
        fields = {key: value for key, value in placement.items() if key != "topology_conf"}
        name = _name(placement["topology_conf"], f"{spec}: placement.topology_conf")
        opened["placement"] = {**fields, **read_switches(spec.parent / name)}
    return opened


def _name(value: Any, where: str) -> str:
    if not isinstance(value, str):
        raise SpecError(f"{where}: {show_value(value)} is not a file; give its name")
    return value


def read_graph(path: Path) -> dict[str, Any]:
    """Return the fields of a graph from a file.

    Parameters
    ----------
    path : Path
        File in GraphML, in JSON as networkx writes it, with ``nodes`` and ``links`` or
        ``edges``, or in JSON of a platform, with ``hosts``, ``links`` and ``routes``. Edges
        can have the attributes `bandwidth` (a rate) or `bandwidth_B_per_s`, and `latency_ns`
        or `latency_s`. Nodes whose `kind` is "host" are hosts. If no node has this kind,
        nodes with one neighbor are hosts; if there are none of these, all nodes are.

    Raises
    ------
    SpecError
        If the file has none of these forms.
    """
    if path.suffix == ".graphml":
        return _of_nodes(*_read_graphml(path), str(path))
    document = read_document(path, "graph", _LIMITS)
    if not isinstance(document, Mapping):
        raise SpecError(f"{path}: is not a mapping; {_FORMS}")
    if "routes" in document:
        return _of_platform(document, str(path))
    nodes, links = document.get("nodes"), document.get("links", document.get("edges"))
    if not isinstance(nodes, list) or not isinstance(links, list):
        raise SpecError(f"{path}: has neither nodes and links nor routes; {_FORMS}")
    try:
        named = {str(node["id"]): dict(node) for node in nodes}
        ends = [(str(link["source"]), str(link["target"]), dict(link)) for link in links]
    except (KeyError, TypeError, ValueError):
        raise SpecError(
            f"{path}: a node has no id, or a link no source and target; {_FORMS}"
        ) from None
    return _of_nodes(named, ends, bool(document.get("directed", False)), str(path))


Nodes = dict[str, dict[str, Any]]
Edges = list[tuple[str, str, dict[str, Any]]]


def _read_graphml(path: Path) -> tuple[Nodes, Edges, bool]:
    graph = read_graphml(path, _FORMS)
    nodes = {str(name): dict(values) for name, values in graph.nodes(data=True)}
    edges = [(str(one), str(other), dict(values)) for one, other, values in graph.edges(data=True)]
    return nodes, edges, graph.is_directed()


def read_graphml(path: Path, way_out: str) -> networkx.Graph[Any]:
    """Return the graph in a GraphML file.

    Raises
    ------
    SpecError
        If the file cannot be read, or has no nodes.
    """
    import networkx

    with foreign_reader(path, "GraphML", way_out):
        graph = networkx.read_graphml(path)
    if not graph:
        raise SpecError(f"{path}: has no nodes; {way_out}")
    return graph


def _of_nodes(nodes: Nodes, edges: Edges, is_directed: bool, path: str) -> dict[str, Any]:
    """Return the fields of a graph that is given by nodes and edges with attributes."""
    near: dict[str, dict[str, None]] = {name: {} for name in nodes}
    for one, other, _ in edges:
        near.setdefault(one, {})[other] = None
        near.setdefault(other, {})[one] = None
    hosts = [name for name, values in nodes.items() if values.get("kind") == "host"]
    hosts = hosts or [name for name in nodes if len(near[name]) == 1] or list(nodes)
    links = [
        {"source": one, "target": other, "both": not is_directed, **_costs(values, path)}
        for one, other, values in edges
    ]
    fields: dict[str, Any] = {"hosts": hosts, "links": links}
    # The group of a host is its own, or else that of the first switch to which it is linked.
    first = [nodes.get(next(iter(near[host]), host), {}) for host in hosts]
    groups = [
        nodes[host].get("group", switch.get("group"))
        for host, switch in zip(hosts, first, strict=True)
    ]
    known = [group for group in groups if group is not None]
    if len(known) == len(hosts):
        numbers = {group: i for i, group in enumerate(dict.fromkeys(map(str, known)))}
        fields["groups"] = [numbers[str(group)] for group in known]
    return fields


def _costs(values: Mapping[str, Any], path: str) -> dict[str, Any]:
    """Return bandwidth, latency and name of a link, read from its attributes."""
    costs: dict[str, Any] = {}
    if "bandwidth_B_per_s" in values:
        given = values["bandwidth_B_per_s"]
        if type(given) not in (int, float) or not 0 < given <= _MAX_BYTES_PER_S:
            raise SpecError(
                f"{path}: bandwidth_B_per_s {show_value(given)} is not a bandwidth; "
                f"give more than 0 and at most {_MAX_BYTES_PER_S}"
            )
        costs["bandwidth"] = write_rate(max(1, round(given * _RATE_BITS)))
    elif "bandwidth" in values:
        costs["bandwidth"] = values["bandwidth"]
    if "latency_s" in values:
        given = values["latency_s"]
        if type(given) not in (int, float) or not 0 <= given <= _MAX_LATENCY_S:
            raise SpecError(
                f"{path}: latency_s {show_value(given)} is not a latency; "
                f"give 0 to {_MAX_LATENCY_S} seconds"
            )
        costs["latency_ns"] = round(given * 1e9, 6)
    elif "latency_ns" in values:
        costs["latency_ns"] = values["latency_ns"]
    if isinstance(values.get("name"), str):
        costs["name"] = values["name"]
    return costs


def _of_platform(document: Mapping[str, Any], path: str) -> dict[str, Any]:
    links = document.get("links")
    if not isinstance(links, list) or not all(isinstance(link, Mapping) for link in links):
        raise SpecError(f"{path}: links is no list of links; {_FORMS}")
    fields = [{"both": False, **_costs(link, path)} for link in links]
    return {"hosts": document.get("hosts"), "links": fields, "routes": document["routes"]}
