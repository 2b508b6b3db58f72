"""Attacks on each reader: random specs, GOAL schedules, plans, tables, machines, measurements."""

from __future__ import annotations

import io
import json
import tempfile
import zipfile
from collections.abc import Mapping
from functools import cache
from pathlib import Path
from typing import Any, Final

import numpy as np
import yaml
from hypothesis import strategies as st

from attack_documents import (
    INTEGERS,
    JSON_TEXTS,
    Draw,
    change,
    change_words,
    damage,
    documents,
    how_many,
    take_apart,
    write,
)
from attacking import Attack
from collplan.planner import compile_plan
from collplan.planner.algorithms import registry
from collplan.planner.formats.npz import _narrow, _npy_header, save
from collplan.planner.passes.registry import pass_registry
from collplan.specs import parse_spec
from collplan.specs.collectives.collective import COLLECTIVES
from collplan.specs.collectives.predefined import BUILTIN, DATATYPES
from collplan.specs.methods.decomposition import DECOMPOSITIONS
from collplan.specs.presets import preset_names
from folders import ROOT, TABLE_FILE
from machinery import Machinery

LARGE: Final = ("hydra_allreduce", "reduce_hydra", "vsc3_bcast", "alltoall_ohio")
SPECS: Final = [
    yaml.safe_load(path.read_text())
    for path in sorted((ROOT / "examples").glob("*.yaml"))
    if path.stem not in LARGE
]
for spec in SPECS:
    # Small messages: what an attack cuts into bytes is proved within seconds.
    if "count" in spec["collective"]:
        spec["collective"]["count"] = min(spec["collective"]["count"], 1024)
_ALGORITHMS: Final = sorted({each.name for kind in registry.kinds() for each in registry.of(kind)})
_SMALL: Final = (1, 2, 3, 4, 5, 8)
_LINK: Final = {"L_ns": 1, "o_ns": 1, "g_ns": 1, "G_ns_per_byte": 0.1}
_NIC: Final = {"connections": 2, "miss_ns": 100, "transport": "dc", "reconnect_ns": 50}
_NUMBERS: Final = (0, 1, 7, 100, 65536, 2**40, 1e18, 1e300, 5e-324)

_PRESETS: Final = tuple({"preset": name, "nodes": 2} for name in preset_names())
"""Nodes of clusters: all of one make millions of tasks, which take minutes to print."""

KNOWN: Final[dict[str, tuple[Any, ...]]] = {
    "machine": (*_PRESETS, {"nodes": 2, "ranks_per_node": 2}, "m.yaml", "m.json", "/", "."),
    "preset": preset_names(),
    "nodes": (*_SMALL, 17, 64),
    "ranks_per_node": (*_SMALL, 17, [1, 2], [3, 1, 2]),
    "numa_domains": _SMALL,
    "cores": (*_SMALL, 64, 10**9, 2**31),
    "lanes": (*_SMALL, 2**15, 2**16),
    "rank_order": ("block", "cyclic", [0, 1, 1, 0]),
    "network": ({"network": _LINK}, {"nic": _NIC}, {"eager_limit_bytes": 0, "handshake": True}),
    "core": (_LINK,),
    "numa": (_LINK,),
    "node": (_LINK, "mesh", {"name": "mesh", "shape": [2, 2]}, "shared", "ring"),
    "lane": ("guideline", "hierarchical", {"name": "multi_leader", "leaders": 2}, "chain"),
    "L_ns": _NUMBERS,
    "o_ns": _NUMBERS,
    "g_ns": _NUMBERS,
    "G_ns_per_byte": _NUMBERS,
    "O_ns_per_byte": _NUMBERS,
    "offload": (True,),
    "eager_limit_bytes": (0, 1, "8KiB", 2**62),
    "handshake": (True,),
    "turn_bytes": (1, 64, "4KiB", 2**62),
    "burst_bytes": (1, "64KiB", 2**62),
    "copy_ns_per_byte": _NUMBERS,
    "reduce_ns_per_byte": _NUMBERS,
    "strided_ns_per_byte": _NUMBERS,
    "cache_bytes": (0, 1, "1MiB", 2**62),
    "uncached_ns_per_byte": _NUMBERS,
    "memory_ns_per_byte": _NUMBERS,
    "processors": (*_SMALL, 2**31, 2**63),
    "nic": (_NIC, {"connections": 2**40, "miss_ns": 1}, {"connections": 1, "miss_ns": 1e9}),
    "connections": (1, 2, 2**31, 2**62),
    "miss_ns": _NUMBERS,
    "reads_at_once": (1, 2, 2**40),
    "transport": ("shared", "messages", {"node": "shared"}, "rc", "dc", "ud"),
    "packet_bytes": (1, 4096, 2**62),
    "warm": (True,),
    "switch_s": (0.001, 1e300),
    "collective": tuple(
        {"kind": kind, "count": 3} for kind, model in COLLECTIVES.items() if not model.regular
    ),
    "kind": tuple(COLLECTIVES),
    "count": (0, 1, 2, 3, 7, 16, 1000, 2**40),
    "datatype": (*DATATYPES, "double"),
    "op": (*BUILTIN, {"name": "mine", "commutative": False}, {"name": "sum", "commutative": False}),
    "root": (0, 1, 3),
    "in_place": (True,),
    "decomposition": (
        *DECOMPOSITIONS,
        {"name": "mesh", "shape": [2, 2]},
        {"name": "mesh", "shape": [2, 2, 2]},
        {"name": "multi_leader", "leaders": 2},
        {"name": "full_lane", "by": "numa", "node": "mesh", "lane": "guideline"},
        {"name": "hierarchical", "node": {"name": "hierarchical", "by": "numa"}},
    ),
    "leaders": _SMALL,
    "shape": ([2, 2], [4, 1], [1, 1, 1, 4], [2, 4], [1] * 1000),
    "by": ("node", "numa"),
    "form": ("reduce+bcast", "scatter+allgather"),
    "name": (*_ALGORITHMS, *pass_registry, *DECOMPOSITIONS),
    "radix": (2, 3, 5, 2**15, 10**9, 2**63),
    "algorithms": (*_ALGORITHMS, "auto", {"node": "ring", "lane": "chain"}, {"name": "knomial"}),
    "passes": (
        *([name] for name in pass_registry),
        [{"name": "segment", "max_bytes": 8}],
        ["coalesce_requests", "double_buffer"],
        ["prioritize", {"name": "limit_requests", "remote": 1}],
        [{"name": "share", "roles": ["node"]}, "split_tree"],
    ),
    "options": ({"radix": 3}, {}),
    "max_bytes": (1, 8, 24, "1KiB", 2**63, 0),
    "slots": (*_SMALL, 10**9, 2**63),
    "remote": (*_SMALL, 2**40),
    "local": _SMALL,
    "receives": _SMALL,
    "roles": (["node"], ["lane"], [], 5, {"node": "shared"}),
    "levels": (*_SMALL, "auto", 10**9),
    "comm_cores": (*_SMALL, 2**31),
    "policy": ("odd_even", "bind", "numa"),
    "staging": ("remap", "copy"),
    "when": ("round", "start"),
    "duration_ns": (0, 1, 2**53, 2**63),
}
"""Keys of specs with values that make sense, or nearly."""


def _commands(file: str) -> st.SearchStrategy[list[str]]:
    """Return command lines that read a spec or a plan."""
    return st.sampled_from(
        (
            ["compile", file],
            ["compile", file, "-o", "out.plan", "--json"],
            ["compile", file, "--passes"],
            ["verify", file],
            ["verify", file, "--json"],
            ["show", file],
            ["show", file, "--rank", "1", "--json"],
            ["cost", file],
            ["cost", file, "--json"],
            ["cost", file, "--allocated", "--trace", "out.json"],
            ["cost", file, "--trace", "out.paje"],
            ["cost", file, "--loggps", "L=1e9,o=0,g=1,G=0.5,O=0,S=0"],
            ["draw", file, "-o", "out.svg"],
            ["draw", file, "-o", "out.dot", "--by", "task"],
            ["draw", file, "-o", "out.dot", "--by", "phase"],
            ["draw", file, "-o", "out.dot", "--by", "rank"],
            ["draw", file, "-o", "out.dot", "--by", "node"],
            ["export", file, "--to", "goal", "-o", "out.goal"],
        )
    )


def _named(stem: str, is_json: bool) -> str:
    return f"{stem}.json" if is_json else f"{stem}.yaml"


@st.composite
def attacks_by_specs(draw: Draw) -> Attack:
    """Specs in YAML or JSON."""
    is_json = draw(st.booleans())
    name = _named("spec", is_json)
    content = draw(documents(SPECS, KNOWN, is_json=is_json))
    return Attack({name: content}, draw(_commands(name)))


MACHINES: Final = [
    {"nodes": 2, "ranks_per_node": 2, "lanes": 2},
    {"nodes": 2, "ranks_per_node": [1, 3], "rank_order": "cyclic", "cores": 4, "numa_domains": 2},
    *(
        yaml.safe_load((ROOT / "specs" / "presets" / f"{name}.yaml").read_text())
        | {"nodes": 2, "ranks_per_node": 2}
        for name in preset_names()
    ),
]


@st.composite
def attacks_by_machines(draw: Draw) -> Attack:
    """Machine files that a spec or an option names, and machines in the environment."""
    is_json = draw(st.booleans())
    name = _named("m", is_json)
    content = draw(documents(MACHINES, KNOWN, is_json=is_json))
    spec = dict(draw(st.sampled_from(SPECS)), machine=name)
    where = draw(st.integers(0, 5))
    if where == 0:
        listing = ["tune", "--list", "--collectives", "allreduce", "--machine", name]
        return Attack({name: content}, listing)
    if where == 1 and b"\x00" not in content:
        del spec["machine"]
        files = {"spec.json": json.dumps(spec).encode()}
        return Attack(files, draw(_commands("spec.json")), content.decode("utf-8", "replace"))
    files = {name: content, "spec.json": json.dumps(spec).encode()}
    return Attack(files, draw(_commands("spec.json")))


GOALS: Final = (
    "num_ranks 1 rank 0 { l1: calc 5 }",
    "num_ranks 2 rank 0 { l1: send 8b to 1 tag 7 cpu 1 nic 2 \n l2: calc 100 cpu 3 // core \n "
    "l2 requires l1 \n l3: recv 5b from 1 \n l3 irequires l2 \n l3 requires l1 \n } "
    "rank 1 { /* two */ l1: recv 8b from 0 tag 7 \n l2: send 5b to 0 nic 1 }",
    "num_ranks 3 " + " ".join(
        f"rank {i} {{ l1: send 1000b to {(i + 1) % 3} \n l2: recv 1000b from {(i + 2) % 3} \n "
        f"l3: calc 70 \n l3 requires l2 \n l4: send 9b to {(i + 1) % 3} tag 1 \n l4 requires l3 \n "
        f"l5: recv 9b from {(i + 2) % 3} tag 1 \n }}"
        for i in range(3)
    ),
)  # fmt: skip
_WORDS: Final = (
    *("num_ranks", "rank", "{", "}", "l1", "l2", "l1:", ":", "send", "recv", "calc", "8b", "to"),
    *(
        "from",
        "tag",
        "cpu",
        "nic",
        "requires",
        "irequires",
        "/*",
        "*/",
        "//",
        "\n",
        ";",
        "0b",
        "-1",
    ),
    *("/* " * 20_000, "x" * 20_000, " " * 20_000, "\n" * 20_000, "9" * 5000, "9" * 5000 + "b"),
    *("l1 requires l1\n", "l2 requires l1\nl1 requires l2\n", "l9: calc 5\n", "\x1b[31m", "\x00"),
    *(
        "l8: send 8b to 1\n",
        "l8: recv 8b from 1 tag 3\n",
        "rank 1 { }",
        "num_ranks 65536",
        "é",
        f"{2**48}b",
    ),
    *(str(number) for number in INTEGERS),
)


@st.composite
def attacks_by_goal(draw: Draw) -> Attack:
    """GOAL schedules with words changed, left out, inserted and repeated."""
    content = change_words(draw, draw(st.sampled_from(GOALS)), _WORDS)
    commands = (["cost"], ["show"], ["verify"], ["draw", "-o", "out.dot"])
    command, *options = draw(st.sampled_from(commands))
    return Attack({"x.goal": content}, [command, "x.goal", *options])


@cache
def plan_members() -> list[dict[str, bytes]]:
    """Return the members of some good plan files."""
    found = []
    for spec in (
        {"machine": {"ranks_per_node": 4}, "collective": {"kind": "allreduce", "count": 16},
         "algorithms": "ring"},
        {"machine": {"nodes": 2, "ranks_per_node": 2}, "collective": {"kind": "alltoall",
         "count": 2}, "decomposition": "hierarchical", "transport": "shared"},
        {"machine": {"nodes": 3}, "collective": {"kind": "bcast", "count": 64},
         "passes": [{"name": "segment", "max_bytes": 64}]},
        {"machine": {"nodes": 2, "ranks_per_node": 2, "lanes": 2}, "collective": {"kind": "scan",
         "count": 6}, "decomposition": "full_lane"},
        {"machine": {"nodes": 2}, "collective": {"kind": "barrier"}},
        {"collective": {"kind": "reduce", "count": 5}},
    ):  # fmt: skip
        with tempfile.TemporaryDirectory() as folder:
            path = Path(folder, "x.plan")
            save(compile_plan(parse_spec(spec)), path)
            with zipfile.ZipFile(path) as archive:
                found.append({name: archive.read(name) for name in archive.namelist()})
    return found


_META: Final[dict[str, tuple[Any, ...]]] = {
    **KNOWN,
    "rows": ({},),
    "tasks": (0, 1, 2**31 - 1),
    "ranks": (0, 1, 2**31 - 1),
    "patterns": (0, 1, 2),
    "reads": (0, 1),
    "writes": (0, 1),
    "deps": (0, 1),
    "foreign": (0, 1),
    "awaited": (0, 1),
    "constant": ([], ["op"], ["tag", "lane"]),
    "itemsize": (1, 3, 4, 8, 65536),
    "only_rank": (0, 1, None),
    "phases": ([], ["\x1b[31m"], ["a" * 5000], ["a"] * 5000),
    "spec": (None, {"collective": {"kind": "barrier"}}),
    "version": (1, 2, 3),
}


def _change_column(draw: Draw, content: bytes) -> bytes:
    array = np.load(io.BytesIO(content)).astype(np.int64)
    flat = array.reshape(-1)
    n = len(flat)
    what = draw(st.integers(0, 5))
    if n and what <= 2:
        for _ in range(draw(st.integers(1, 3))):
            i, j = draw(st.integers(0, n - 1)), draw(st.integers(0, n - 1))
            here = int(flat[i])
            near = (here - 1, here + 1, int(flat[j]), -here, 0, -1)
            chosen = draw(st.sampled_from(near if what else INTEGERS))
            flat[i] = min(max(chosen, -(2**63)), 2**63 - 1)
    elif what == 3:
        flat[:] = np.roll(flat, draw(st.integers(0, 3)))
    elif what == 4:
        flat[:] = flat[::-1].copy()
    else:
        array = array[: draw(st.integers(0, len(array)))]
    narrow = _narrow(array)
    return _npy_header(narrow.dtype.str, narrow.shape) + narrow.tobytes()


@st.composite
def attacks_by_plans(draw: Draw) -> Attack:
    """Plan files with metadata, columns, members and the archive changed."""
    members = dict(draw(st.sampled_from(plan_members())))
    meta = take_apart(json.loads(members.pop("plan.json")))
    columns = sorted(members)
    for _ in range(draw(how_many)):
        if draw(st.integers(0, 2)):
            name = draw(st.sampled_from(columns))
            members[name] = _change_column(draw, members[name])
        else:
            meta = change(draw, meta, JSON_TEXTS, _META)
    members["plan.json"] = write(meta, is_json=True).encode("utf-8", "surrogatepass")
    what, name = draw(st.integers(0, 15)), draw(st.sampled_from((*columns, "plan.json")))
    if what == 0:
        members[name] = damage(draw, members[name])
    elif what == 1:
        del members[name]
    elif what == 2:
        members[draw(st.sampled_from(("x.npy", "../x", "op.npy ", "\x1b[31m")))] = members[name]
    content = seal(members, draw(st.sampled_from((0, 0, 0, 0, 0, 0, 8, 12))))
    if draw(st.integers(0, 7)) == 0:
        content = damage(draw, content)
    return Attack({"x.plan": content}, draw(_commands("x.plan")))


def seal(members: Mapping[str, bytes], compression: int = zipfile.ZIP_STORED) -> bytes:
    """Return a zip whose checksums are right, whatever its members hold."""
    stream = io.BytesIO()
    with zipfile.ZipFile(stream, "w", compression) as archive:
        for name, content in members.items():
            archive.writestr(name, content)
    return stream.getvalue()


TABLE: Final = yaml.safe_load(TABLE_FILE.read_text())
TABLES: Final = [
    TABLE | {"sweeps": [sweep], "n_sweeps": 1, "network": {}} for sweep in TABLE["sweeps"]
]
_TABLE_KEYS: Final[dict[str, tuple[Any, ...]]] = {
    **KNOWN,
    "version": (1, 2),
    "cpu": ("some", "\x1b[31m"),
    "cores_per_node": (1, 2**63),
    "mpi": ("MPICH 5", "Open MPI v5.0.7", "x" * 5000),
    "n_sweeps": (0, 1, 2),
    "collective": tuple(COLLECTIVES),
    "op_commutes": (True, False, None),
    "ranks": (1, 4, 65536, 2**63),
    "placement": ({"ranks_per_node": [2, 2]}, {"ranks_per_node": [1] * 4}),
    "bytes": (0, 1, 8, 2**31, 2**63, 2**70, "8KiB"),
    "times": ({}, {"native": {"median_s": 0, "low_s": 0, "high_s": 0, "n": 1}}),
    "median_s": (0, 1e-300, 1e300),
    "low_s": (0, 1e-300, 1e300),
    "high_s": (0, 1e-300, 1e300),
    "winner": ("native", "ring", "chain"),
    "skipped": (0, 2**63),
    "failed": ({"ring": "\x1b[31m"},),
    "choices": ({}, {"native": {"native": True}}),
    "native": (True, False),
    "complete": (True, False),
}
SELECTION: Final = {
    "collective=scan": {"comm_type=intra": {"algorithm=MPIR_Scan_intra_smp": {}}},
    **{
        f"collective={kind}": {
            "comm_type=intra": {
                "comm_size<8": {f"algorithm=MPIR_{kind.capitalize()}_intra_binomial": {}},
                "comm_size=pow2": {"avg_msg_size<=4096": {"algorithm=MPIR_Bcast_intra_tree": {}}},
                "comm_size=any": {"algorithm=MPIR_Allreduce_intra_recursive_doubling": {}},
            },
            "comm_type=inter": {"algorithm=MPIR_Bcast_inter_remote_send_local_bcast": {}},
        }
        for kind in ("bcast", "allreduce", "allgather", "alltoall", "reduce", "barrier", "exscan")
    },
}


@st.composite
def attacks_by_tables(draw: Draw) -> Attack:
    """Tuning tables, and the selections of MPICH that are exported beside them."""
    is_json = draw(st.booleans())
    name = _named("t", is_json)
    to = draw(st.sampled_from(("ompi", "ompi-json", "ucc", "mpich")))
    arguments = ["export", name, "--to", to, "-o", "out.conf"]
    if to != "mpich":
        return Attack({name: draw(documents(TABLES, _TABLE_KEYS, is_json=is_json))}, arguments)
    arguments += ["--defaults", "selection.json"]
    tables = documents(TABLES, _TABLE_KEYS, is_json=is_json)
    selection = draw(documents([SELECTION], {}, is_json=True))
    return Attack({name: draw(tables), "selection.json": selection}, arguments)


@cache
def measurements() -> list[dict[str, Any]]:
    """Return some good measurements, few and with few repetitions."""
    document = Machinery().measure()
    for name, entries in document.items():
        if isinstance(entries, list):
            if name in ("ping_pongs", "bursts", "transfers"):
                entries[:] = [entry for entry in entries if entry["pair"][0] == 0][::2]
            for entry in entries:
                for key in ("seconds", "send_cpu_s", "recv_cpu_s", "send_s"):
                    if key in entry:
                        entry[key] = entry[key][:3]
    return [json.loads(json.dumps(document))]


_MEASUREMENT_KEYS: Final[dict[str, tuple[Any, ...]]] = {
    "rank_to_node": ([0, 1], [0, 0], [0, 2**63], [0, 10**6]),
    "rank_to_numa": ([0, 0], [0, 5], [2**63, 0]),
    "numa_domains": (1, 2, 2**63),
    "lanes": (1, 2, 2**15, 2**63),
    "processors": (1, 2**63),
    "ranks_per_core": (0.5, 1e300),
    "link": ("core", "numa", "node", "network"),
    "pair": ([0, 0], [0, 99], [2**63, 1]),
    "bytes": (0, 1, 2**63, 2**70),
    "seconds": ([0], [1e300], [1e-300, 1], [0] * 3000),
    "messages": (1, 2, 2**63),
    "send_cpu_s": ([0], [1e300]),
    "recv_cpu_s": ([0], [1e300]),
    "send_s": ([0], [1e300]),
    "delay_s": (1e-300, 1e300),
    "ranks": (1, 2, 2**63),
    "rounds": (1, 2**63, {"rounds": 3, "seconds": [1]}, None),
    "work": ("copy", "reduce"),
    "layout": ("contiguous", "strided"),
    "working_set_bytes": (1, 2**63, 2**70),
    "host": ("\x1b[31m", "a\nb: c", "x" * 5000),
    "date": ("\x85", "# x"),
    "mpi": ("'", "\u2028"),
    "version": (1, 2),
}


@st.composite
def attacks_by_measurements(draw: Draw) -> Attack:
    """Files of measurements that machines are fitted to."""
    content = draw(documents(measurements(), _MEASUREMENT_KEYS, is_json=True))
    options = draw(st.sampled_from(([], ["--json"], ["--plot", "out.svg"])))
    return Attack({"m.json": content}, ["calibrate", "--fit", "m.json", "-o", "out.yaml", *options])
