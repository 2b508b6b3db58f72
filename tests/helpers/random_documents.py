"""Random documents of specs: machines, collectives, methods of all kinds, in any combination."""

from __future__ import annotations

import random
from typing import Any

from collplan.planner.algorithms import registry
from collplan.planner.blueprint.exchange import FORMS as EXCHANGES
from collplan.planner.decompose import second_forms
from collplan.planner.decompose.guideline import FORMS as GUIDELINES
from collplan.specs.collectives.collective import COLLECTIVES
from neighborhoods import random_graph
from oracle import AFFINE, gaps, random_counts

MOST_RANKS = 12
Document = dict[str, Any]
_FLAVOURS = (("int32", "sum"), ("uint64", AFFINE), ("float64", "sum"), ("float32", "max"))
_ROLES = {"flat": (), "mesh": ("row", "column"), "guideline": ("world",)}
"""Roles of decompositions; all others have ``node`` and ``lane``."""
_DECOMPOSITIONS = ("flat", "flat", "hierarchical", "full_lane", "multi_leader", "mesh", "guideline")
_PASSES: dict[str, dict[str, tuple[Any, ...]]] = {
    "segment": {"max_bytes": (4, 8, 24, 64)},
    "limit_requests": {"remote": (1, 2), "local": (1, 2), "receives": (1, 3)},
    "prioritize": {},
    "split_lanes": {"leaders": (1, 2, 3)},
    "slice_vector": {"slices": (2, 3)},
    "coalesce_requests": {"staging": ("remap", "pack", "layout"), "when": ("round", "ready")},
    "double_buffer": {"slots": (2, 3)},
    "share": {},
    "map_ranks": {},
    "split_tree": {"levels": (1, 2)},
    "place_progress": {"policy": ("odd_even",)},
    "add_compute": {"duration_ns": (5, 1000)},
}
"""Options of passes, with some of their values."""


def random_document(rng: random.Random) -> Document:
    """Return a spec as a document. Some combinations are refused when it is read or compiled."""
    machine = _machine(rng)
    per_node = machine["ranks_per_node"]
    n_ranks = sum(per_node) if isinstance(per_node, list) else machine["nodes"] * per_node
    collective = _collective(rng, n_ranks)
    planned = COLLECTIVES[collective["kind"]].regular or collective["kind"]
    document = {"machine": machine, "collective": collective}
    if rng.random() < 0.1:
        return document | {"decomposition": "auto"}
    decomposition = "flat"
    if planned != "barrier":
        decomposition = _decomposition(rng, planned, machine, n_ranks)
    name = decomposition if isinstance(decomposition, str) else decomposition["name"]
    roles = _ROLES.get(name, ("node", "lane"))
    transports = ["messages", "messages", "shared", *({one: "shared"} for one in roles[:1])]
    return document | {
        "decomposition": decomposition,
        "algorithms": _algorithms(rng, planned, n_ranks, collective.get("op") != AFFINE, roles),
        "transport": rng.choice(transports),
        "passes": [_pass(rng) for _ in range(rng.choice((0, 0, 0, 1, 1, 2)))],
    }


def _machine(rng: random.Random) -> Document:
    nodes = rng.randint(1, 5)
    most = MOST_RANKS // nodes
    per_node: Any = rng.randint(1, most)
    if rng.random() < 0.4:
        per_node = [rng.randint(1, most) for _ in range(nodes)]
    order: Any = rng.choice(("block", "block", "cyclic", "random"))
    if order == "random":
        order = [node for node in range(nodes) for _ in range(_on_node(per_node, node))]
        rng.shuffle(order)
    machine: Document = {
        "nodes": nodes,
        "ranks_per_node": per_node,
        "rank_order": order,
        "lanes": rng.choice((1, 1, 2, 3, ["100Gbit", "50Gbit"], ["20Gbit"] * 2)),
    }
    if rng.random() < 0.4:
        machine["cores"] = _fullest(machine) + rng.randint(0, 2)
    if rng.random() < 0.3:
        machine["numa_domains"] = rng.randint(1, _fullest(machine))
    if rng.random() < 0.2:
        tree = {"kind": "fat_tree", "down": [2, 3], "up": [1, 1]}
        machine["network"] = {"topology": tree}
    return machine


def _fullest(machine: Document) -> int:
    return max(_on_node(machine["ranks_per_node"], node) for node in range(machine["nodes"]))


def _on_node(per_node: Any, node: int) -> int:
    return int(per_node[node] if isinstance(per_node, list) else per_node)


def _collective(rng: random.Random, n_ranks: int) -> Document:
    # Only allreduces show whether ranks get equal bits.
    kind = rng.choice([*COLLECTIVES, "allreduce", "allreduce"])
    model = COLLECTIVES[kind]
    datatype, op = rng.choice(_FLAVOURS)
    drawn: Document = {
        "count": rng.choice((0, 1, 2, n_ranks - 1, n_ranks, 3 * n_ranks + 1, 40)),
        "root": rng.randrange(n_ranks),
        "in_place": rng.random() < 0.4,
        "datatype": datatype,
        "op": op,
    }
    collective = {"kind": kind} | {k: v for k, v in drawn.items() if k in model.model_fields}
    if model.has_edges:
        return collective | random_graph(rng, kind, n_ranks)
    if model.regular:
        in_place = collective.get("in_place", False)
        counts = random_counts(rng, model.regular, n_ranks, in_place)
        collective["counts"] = _plain(counts)
        if rng.random() < 0.5:
            places = gaps(rng, model.regular, counts, in_place)
            collective |= {name: _plain(values) for name, values in places.items()}
    return collective


def _plain(values: Any) -> Any:
    return values.tolist() if hasattr(values, "tolist") else list(values)


def _decomposition(rng: random.Random, kind: str, machine: Document, n_ranks: int) -> Any:
    name = rng.choice(_DECOMPOSITIONS)
    if name == "flat":
        return name
    if name == "guideline":
        return {"name": name, "form": rng.choice(list(GUIDELINES.get(kind) or {"": 0}))}
    if name == "mesh":
        divisors = [n for n in range(1, n_ranks + 1) if n_ranks % n == 0]
        rows = rng.choice(divisors)
        shaped = {"name": name, "shape": [rows, n_ranks // rows]}
        return rng.choice((shaped, {"name": name, "by": rng.choice(("node", "numa"))}))
    found: Document = {"name": name}
    if name == "multi_leader":
        found["leaders"] = rng.randint(1, min(3, _fullest(machine)))
    forms = (*second_forms(kind), *EXCHANGES) if kind == "alltoall" else second_forms(kind)
    if name != "hierarchical" and rng.random() < 0.3:
        found["shares"] = "balanced"
    elif forms and rng.random() < 0.3:
        found["form"] = rng.choice(forms)
    if rng.random() < 0.2:
        found[rng.choice(("node", "lane"))] = rng.choice(("flat", "hierarchical", "full_lane"))
    if "numa_domains" in machine and rng.random() < 0.4:
        found["by"] = "numa"
    return found


def _algorithms(
    rng: random.Random, kind: str, n_ranks: int, commutes: bool, roles: tuple[str, ...]
) -> Any:
    """Return one algorithm for all roles that have it, or one for each role."""
    legal = [*registry.legal(kind, n_ranks, commutes), None]

    def choose() -> Any:
        one = rng.choice(legal)
        if one is None or rng.random() < 0.1:
            return rng.choice(("auto", "native"))
        options = {"radix": rng.choice((2, 3, 4)), "blocks": rng.choice((1, 2, 3))}
        given = {k: v for k, v in options.items() if k in (one.options or {})}
        return {"name": one.name, **given} if given and rng.random() < 0.7 else one.name

    if roles and rng.random() < 0.3:
        return {role: choose() for role in roles}
    return choose() if rng.random() < 0.7 else "auto"


def _pass(rng: random.Random) -> Document:
    name = rng.choice(list(_PASSES))
    options = {key: rng.choice(values) for key, values in _PASSES[name].items()}
    return {"name": name, **{k: v for k, v in options.items() if rng.random() < 0.8}}
