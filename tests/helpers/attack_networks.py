"""Attacks on readers of graphs, placements, tables of counts, schedules and runs."""

from __future__ import annotations

import io
import json
import tarfile
from functools import cache
from typing import Any, Final

import networkx
import numpy as np
import yaml
from hypothesis import strategies as st

from attack_documents import (
    INTEGERS,
    TEXTS,
    Draw,
    change_words,
    damage,
    documents,
)
from attacking import Attack
from collplan.planner import compile_plan
from collplan.specs import parse_spec
from folders import ROOT

_RATES: Final = ("100Gbit", "12.5MB/s", 25e9, 1e300, -1, float("nan"), float("inf"), 0)
_TIMES: Final = (0, 100.0, 4e-7, 1e300, -1, float("nan"), float("inf"))
_HOST_LISTS: Final = (
    "n[00-03]", "n[0-1],n[2-3]", "n0,n1,n2,n3", "r[0-1]c[0-1]", "n[0-3", "n]", "n[3-0]", "n[0-99]",
    "n[" + ",".join(["0-999999"] * 300) + "]", "n[0-999]m[0-999]", "," * 9000, "n" * 9000,
    "n," * 9000, "[" * 9000, "n[" + "9" * 5000 + "]", "n[" + "0" * 5000 + "-1]", "", " ", "n[]",
)  # fmt: skip


def _graph(*, is_directed: bool = False) -> networkx.Graph:
    """Return a graph of four hosts and two switches with all attributes that are read."""
    graph = networkx.Graph()
    for i in range(4):
        graph.add_edge(f"h{i}", f"s{i // 2}", bandwidth="100Gbit", latency_ns=100.0, name=f"l{i}")
    graph.add_edge("s0", "s1", bandwidth_B_per_s=25e9, latency_s=4e-7)
    for name in graph.nodes:
        graph.nodes[name]["kind"] = "host" if name.startswith("h") else "switch"
        graph.nodes[name]["group"] = name[-1]
    return graph.to_directed() if is_directed else graph


def _ranks(*, is_directed: bool = False) -> networkx.Graph:
    graph = networkx.cycle_graph(4)
    networkx.set_edge_attributes(graph, 2, "width")
    networkx.set_edge_attributes(graph, 1.0, "capacity")
    return graph.to_directed() if is_directed else graph


def _graphml(graph: networkx.Graph) -> str:
    return "\n".join(networkx.generate_graphml(graph, named_key_ids=True))


_GRAPHML_WORDS: Final = (
    "<node", "</node>", "<edge", "/>", ">", "<", "<graph", "</graph>", "</graphml>", "&x;", "]]>",
    'id="h0"', 'source="h9"', 'target="s0"', 'edgedefault="directed"', 'edgedefault="x"', 'for="x"',
    'attr.type="double"', 'attr.type="int"', 'attr.type="boolean"', 'attr.type="x"', 'key="width"',
    '<data key="width">NaN</data>', '<data key="width">INF</data>', "<data>1e400</data>",
    '<data key="bandwidth">1bit</data>', "<hyperedge/>", "<port/>", '<?xml version="1.1"?>',
    '<!DOCTYPE a [<!ENTITY x "y">]>', "9" * 5000, "true", "", "-1", "2.5", "x" * 3000,
)  # fmt: skip


def _network_spec(draw: Draw, file: str) -> dict[str, Any]:
    topology = {"kind": "graph", "file": file}
    if draw(st.integers(0, 4)) == 0:
        topology |= {"latency_ns": 5, "bandwidth": "10Gbit"}
    machine: dict[str, Any] = {"nodes": 4, "network": {"topology": topology}}
    if draw(st.integers(0, 4)) == 0:
        named: tuple[str, ...] = (*_HOST_LISTS, "h[0-3]")
        machine["placement"] = {"nodelist": draw(st.sampled_from(named))}
    return {"machine": machine, "collective": {"kind": "allreduce", "count": 16}}


_PRICED: Final = (["cost", "spec.json"], ["compile", "spec.json"], ["cost", "spec.json", "--json"])


@st.composite
def attacks_by_graphml(draw: Draw) -> Attack:
    """GraphML of machines, and of links that a search may use."""
    is_directed = draw(st.booleans())
    if draw(st.integers(0, 3)) == 0:
        content = change_words(draw, _graphml(_ranks(is_directed=is_directed)), _GRAPHML_WORDS)
        return Attack({"g.graphml": content, "spec.json": _RING}, [*_SYNTHESIS, "g.graphml"])
    content = change_words(draw, _graphml(_graph(is_directed=is_directed)), _GRAPHML_WORDS)
    spec = json.dumps(_network_spec(draw, "g.graphml")).encode()
    return Attack({"g.graphml": content, "spec.json": spec}, draw(st.sampled_from(_PRICED)))


_RING: Final = json.dumps(
    {"machine": {"ranks_per_node": 4}, "collective": {"kind": "allgather", "count": 1}}
).encode()
_SYNTHESIS: Final = ["synthesize", "spec.json", "-o", "out.py", "--time-limit", "1", "--links"]
LINKS: Final = [
    {"both_ways": [[0, 1], [1, 2, 2], [2, 3], [3, 0]]},
    {"one_way": [[0, 1], [1, 2], [2, 3], [3, 0, 3]]},
]
_LINK_KEYS: Final[dict[str, tuple[Any, ...]]] = {
    "both_ways": ([], [[0, 1]], [[0, 0]], [[0, 1, 65]]),
    "one_way": ([[0, 1], [0, 1]], [[0]], [[-1, 1]], [[65535, 0]]),
}


@st.composite
def attacks_by_links(draw: Draw) -> Attack:
    """Links between ranks in YAML or JSON."""
    is_json = draw(st.booleans())
    name = "l.json" if is_json else "l.yaml"
    content = draw(documents(LINKS, _LINK_KEYS, is_json=is_json))
    return Attack({name: content, "spec.json": _RING}, [*_SYNTHESIS, name])


def _platform(n_hosts: int = 4) -> dict[str, Any]:
    """Return a platform in which every host has a link to each direction of a ring."""
    link = {"bandwidth_B_per_s": 1e9, "latency_s": 1e-6}
    routes = [
        [None if a == b else [a] if b == (a + 1) % n_hosts else [a, b] for b in range(n_hosts)]
        for a in range(n_hosts)
    ]
    links = [{"name": f"l{i}", **link} for i in range(n_hosts)]
    return {"hosts": n_hosts, "links": links, "routes": routes}


_GRAPH_KEYS: Final[dict[str, tuple[Any, ...]]] = {
    "id": ("h0", "s0", 5, None, [1], 2**70),
    "kind": ("host", "switch", 5, None),
    "group": ("x", 1, None, [1]),
    "source": ("h0", "s1", 5, None),
    "target": ("h0", "s1", 5, None),
    "bandwidth": _RATES,
    "bandwidth_B_per_s": _RATES,
    "latency_ns": _TIMES,
    "latency_s": _TIMES,
    "name": ("l0", 5, "x" * 3000),
    "directed": (True, False, "x"),
    "nodes": ([], [{"id": "h0"}]),
    "links": ([], [{"source": "h0", "target": "s0"}]),
    "edges": ([],),
    "routes": ([], [[None]], [[None, [0]], [[1], None]], [[[0, 0], None]] * 4),
    "hosts": (0, 1, 2, 4, 2**31, "4", [1]),
}


@st.composite
def attacks_by_graphs(draw: Draw) -> Attack:
    """Graphs of networkx and platforms in JSON, as the topology of a machine."""
    nodes = [
        networkx.node_link_data(_graph(is_directed=is_directed), edges=key)
        for is_directed in (False, True)
        for key in ("links", "edges")
    ]
    content = draw(documents([*nodes, _platform()], _GRAPH_KEYS, is_json=True))
    spec = json.dumps(_network_spec(draw, "g.json")).encode()
    return Attack({"g.json": content, "spec.json": spec}, draw(st.sampled_from(_PRICED)))


CONF: Final = (
    "# tree\nSwitchName=leaf0 Nodes=n[00-01]\nSwitchName=leaf1 Nodes=n[02-03] LinkSpeed=10\n"
    "SwitchName=leaf2 Nodes=n[04-05]\nSwitchName=leaf3 Nodes=n06,n07\n"
    "SwitchName=agg0 Switches=leaf[0,2]\nSwitchName=agg1 \\\nSwitches=leaf1,leaf3\n"
    "SwitchName=top Switches=agg[0-1]\n"
)
_CONF_WORDS: Final = (
    "SwitchName=leaf0", "SwitchName=agg0", "Nodes=n[0-9]", "Switches=leaf[0-3]", "Switches=top",
    "\n", "\\\n", "#", "=", "Nodes=", "SwitchName=", "x" * 20_000, "a=" * 5000, "\x00", "\x1b[31m",
    *(f"Nodes={text}" for text in _HOST_LISTS), *(f"Switches={text}" for text in _HOST_LISTS),
)  # fmt: skip


@st.composite
def attacks_by_placements(draw: Draw) -> Attack:
    """Slurm's topology.conf and lists of hosts."""
    content = change_words(draw, CONF, _CONF_WORDS)
    listed = draw(st.sampled_from(("n[00-01,04-05]", *_HOST_LISTS)))
    if draw(st.booleans()):
        listed = "n[00-01,04-05]"
    spec = {
        "machine": {
            "nodes": 4,
            "network": {"topology": {"kind": "fat_tree", "down": [2, 2, 2], "up": [1, 1, 1]}},
            "placement": {"nodelist": listed, "topology_conf": "topology.conf"},
        },
        "collective": {"kind": "allreduce", "count": 16},
    }
    files = {"topology.conf": content, "spec.json": json.dumps(spec).encode()}
    return Attack(files, draw(st.sampled_from(_PRICED)))


_ARRAYS: Final = (
    *(np.arange(4, dtype=kind) for kind in ("i8", "i4", "u1", "f2", "f4", "f8", "g", ">i8", "u8")),
    *(np.arange(16, dtype="i8").reshape(4, 4), np.asfortranarray(np.ones((4, 4), "f2"))),
    *(np.array([np.nan, 1, 2, 3]), np.array([1e300, 1, 2, 3]), np.array([-1, 2, 3, 4])),
    *(np.array(["a"] * 4), np.array([1j] * 4), np.array([True] * 4), np.zeros((4, 0), "i8")),
    *(
        np.zeros(4, "M8[s]"),
        np.zeros(4, [("a", "i4"), ("b", "f8")]),
        np.array(5),
        np.zeros(4, "S3"),
    ),
)
_SHAPES: Final = (
    "(True,)", "(99999999999999999999999,)", "(4,", "(-4,)", "(4.0,)", "4", "None", "(2**60,)",
    "(4,)*9", "'4'", "(" * 500, "(1152921504606846976, 4)", "()", "(4, 4)", "(4, -1)", "(1e3,)",
)  # fmt: skip
_DESCRIPTIONS: Final = (
    "|O", "<i3", ">f16", "<U1", "|V4", "", "x", "<i8,<i8", "<M8[ns]", "|b1", "<f2",
)  # fmt: skip


def _npy(draw: Draw, array: np.ndarray[Any, Any]) -> bytes:
    """Return a .npy file, often with another header or damaged."""
    stream = io.BytesIO()
    np.save(stream, array)
    content = stream.getvalue()
    what = draw(st.integers(0, 3))
    if what == 0:
        return damage(draw, content)
    if what == 1:
        shape, kind = draw(st.sampled_from(_SHAPES)), draw(st.sampled_from(_DESCRIPTIONS))
        said = repr(kind) if draw(st.booleans()) else repr(array.dtype.str)
        order = draw(st.sampled_from(("False", "True", "None", "x")))
        head = f"{{'descr': {said}, 'fortran_order': {order}, 'shape': {shape}, }}"
        text = head.encode("latin1") + b" " * draw(st.integers(0, 70)) + b"\n"
        version = draw(
            st.sampled_from((b"\x01\x00", b"\x01\x00", b"\x02\x00", b"\x03\x00", b"\x09\x09"))
        )
        size = len(text).to_bytes(2 if version == b"\x01\x00" else 4, "little")
        return b"\x93NUMPY" + version + size + text + array.tobytes()
    return content


@st.composite
def attacks_by_counts(draw: Draw) -> Attack:
    """Counts and displacements in numpy's format, and their distributions."""
    kind = draw(st.sampled_from(("gatherv", "scatterv", "allgatherv", "alltoallv")))
    collective: dict[str, Any] = {"kind": kind, "counts": "counts.npy"}
    if draw(st.integers(0, 2)) == 0 and kind != "alltoallv":
        collective["displs"] = "counts.npy"
    content = _npy(draw, draw(st.sampled_from(_ARRAYS)))
    spec = {"machine": {"ranks_per_node": 4}, "collective": collective}
    files = {"counts.npy": content, "spec.json": json.dumps(spec).encode()}
    return Attack(files, draw(st.sampled_from((*_PRICED, ["verify", "spec.json"]))))


@cache
def schedules() -> list[str]:
    """Return some small schedules in MSCCL's XML."""
    archive = ROOT / "tests/planner/formats/msccl/examples.tar.xz"
    found = []
    with tarfile.open(archive) as members:
        for member in sorted(members.getmembers(), key=lambda one: one.name):
            file = members.extractfile(member)
            if member.name.endswith(".xml") and member.size < 20_000 and file is not None:
                found.append(file.read().decode())
    return found[:8]


_XML_WORDS: Final = (
    "<algo", "</algo>", "<gpu", "</gpu>", "<tb", "</tb>", "<step", "/>", ">", "<", "&x;", "<x/>",
    'type="s"', 'type="r"', 'type="rrc"', 'type="rcs"', 'type="rrs"', 'type="cpy"', 'type="re"',
    'type="nop"', 'coll="allreduce"', 'coll="custom"', 'coll="alltoall"', 'inplace="1"', 'deps="0"',
    'srcbuf="s"', 'dstbuf="o"', 'hasdep="1"', 'depid="9"', 's="0"', 'proto="LL"', 'name="\x1b"',
    *(f'{name}="{n}"' for name in ("cnt", "srcoff", "dstoff", "id", "send", "recv", "chan", "deps",
      "ngpus", "nchannels", "nchunksperloop", "i_chunks", "s_chunks") for n in (-1, 0, 1, 2**24)),
    '<!DOCTYPE algo [<!ENTITY x "y">]>', "9" * 5000, "x" * 3000, "",
)  # fmt: skip


@st.composite
def attacks_by_schedules(draw: Draw) -> Attack:
    """Schedules in MSCCL's XML."""
    content = change_words(draw, draw(st.sampled_from(schedules())), _XML_WORDS)
    count = draw(st.sampled_from(([], [], ["--count", "48"], ["--count", "1"])))
    return Attack({"x.xml": content}, ["convert", "x.xml", "-o", "out.plan", *count])


_RECORDED: Final = {
    "machine": {"ranks_per_node": 4},
    "collective": {"kind": "bcast", "count": 4},
    "algorithms": "binomial",
}


@cache
def recordings() -> list[dict[str, Any]]:
    """Return recordings of a run, without and with the times of its tasks."""
    spec = parse_spec(_RECORDED)
    n_tasks = compile_plan(spec).n_tasks
    run = {
        "ranks": 4, "bytes": 16, "library": "MPICH", "median_s": 1e-3, "native_median_s": 2e-3,
        "predicted_s": 1e-3, "measured_s": 2e-3, "prediction_error": -0.5, "correct": True,
        "phases": [{"name": "bcast", "measured_s": 2e-3, "simulated_s": 1e-3, "error": None}],
    }  # fmt: skip
    times = {"start_ns": list(range(n_tasks)), "end_ns": [5 * i + 5 for i in range(n_tasks)]}
    return [run, run | times | {"spec": spec.model_dump(mode="json")}]


_RUN_KEYS: Final[dict[str, tuple[Any, ...]]] = {
    **dict.fromkeys(("ranks", "bytes", "start_ns", "end_ns"), (0, 4, [], [1, 2], 2**70, 1e300)),
    **dict.fromkeys(
        ("median_s", "native_median_s", "predicted_s", "measured_s", "simulated_s"),
        (0, 1e-300, 1e300, None, -1),
    ),
    **dict.fromkeys(("error", "prediction_error"), (None, 0, -1, 1e300, "x")),
    "phases": ([], [{}], [{"name": "x"}], None),
    "library": ("MPICH", "<b>", "\x1b[31m", 5),
    "correct": (True, False, None, 5, [1]),
    "decomposition": ("auto", "flat"),
    "algorithms": ("ring", "binomial", "linear", "auto"),
    "count": (4, 2**40, 0),
    "name": TEXTS,
    "seed": INTEGERS,
}


@st.composite
def attacks_by_recordings(draw: Draw) -> Attack:
    """Recordings of runs, which reports show."""
    files = {
        "run.json": draw(documents(recordings(), _RUN_KEYS, is_json=True)),
        "good.yaml": yaml.safe_dump(_RECORDED).encode(),
    }
    report = ["report", "good.yaml", "-o", "out.html", "--measured", "run.json"]
    return Attack(files, [*report, "--seconds", "9", "--sizes", "16B", "--candidates", "linear"])
