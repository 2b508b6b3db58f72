"""Random networks with every field of the cost model, and plans to simulate on them.

All values are multiples of a quarter, so that sums of times are exact.
"""

from __future__ import annotations

from hypothesis import strategies as st

from collplan.executors.cost import Timeline, simulate
from collplan.planner import compile_plan
from collplan.planner.errors import DeadlockError
from collplan.planner.plan.plan import Plan
from collplan.specs import Link, Network, Nic, parse_spec
from cost_schedules import on_machine, random_schedule
from strategies import random_plan

PLAIN = {
    "handshake": False,
    "turn_bytes": None,
    "burst_bytes": 0,
    "processors": None,
    "memory_ns_per_byte": 0.0,
    "nic": None,
    "switch_s": 0.0,
}
"""Without what makes tasks share more than cores and lanes."""
MANY_BYTES = 10**9
_KINDS = ("allgather", "allreduce", "alltoall", "bcast", "gather", "reduce", "scatter")

links = st.builds(
    Link,
    L_ns=st.sampled_from([0, 1, 3, 100, 2500]),
    o_ns=st.sampled_from([0, 1, 10, 200]),
    g_ns=st.sampled_from([0, 2, 20, 3000]),
    G_ns_per_byte=st.sampled_from([0, 0.25, 1, 6]),
    O_ns_per_byte=st.sampled_from([0, 0, 0.5, 2]),
    offload=st.booleans(),
)
networks = st.builds(
    Network,
    core=links,
    numa=links,
    node=links,
    network=links,
    eager_limit_bytes=st.sampled_from([0, 10, 100, 512, 10_000, MANY_BYTES]),
    handshake=st.booleans(),
    turn_bytes=st.sampled_from([None, None, 100, 500, 70_000]),
    burst_bytes=st.sampled_from([0, 0, 1, 100, 100_000]),
    copy_ns_per_byte=st.sampled_from([0, 0.25, 2]),
    reduce_ns_per_byte=st.sampled_from([0, 0.5, 1]),
    strided_ns_per_byte=st.sampled_from([0, 0.25, 2]),
    cache_bytes=st.sampled_from([None, 0, 100, 1000]),
    uncached_ns_per_byte=st.sampled_from([0, 0.25, 2]),
    memory_ns_per_byte=st.sampled_from([0, 0, 0.25, 4]),
    processors=st.sampled_from([None, None, 1, 2, 5]),
    nic=st.sampled_from(
        [
            None,
            None,
            Nic(connections=1, miss_ns=7),
            Nic(connections=2, miss_ns=500, reads_at_once=4, warm=True),
            Nic(connections=2, miss_ns=500, reconnect_ns=500, transport="dc"),
            Nic(connections=1, miss_ns=7, packet_ns=3, packet_bytes=100, transport="ud"),
        ]
    ),
    switch_s=st.sampled_from([0, 0, 1e-9, 3e-7]),
)


@st.composite
def clustered(draw: st.DrawFn) -> Plan:
    """Return a decomposed collective on several nodes and lanes."""
    n_ranks = draw(st.integers(1, 4))
    spec = {
        "machine": {
            "nodes": draw(st.integers(1, 3)),
            "ranks_per_node": n_ranks,
            "lanes": draw(st.integers(1, min(n_ranks, 2))),
        },
        "collective": {
            "kind": draw(st.sampled_from(_KINDS)),
            "count": draw(st.sampled_from([0, 1, 7, 100, 1000])),
        },
        "decomposition": draw(st.sampled_from(["flat", "hierarchical", "full_lane"])),
        "passes": draw(st.sampled_from([[], [{"name": "segment", "max_bytes": 512}]])),
    }
    return compile_plan(parse_spec(spec))


@st.composite
def schedules(draw: st.DrawFn, least: int = 0) -> Plan:
    """Return a random schedule whose ranks share nodes, cores and lanes."""
    n_ranks = draw(st.integers(1, 8))
    text = random_schedule(draw(st.integers(0, 10**6)), n_ranks, draw(st.integers(least, 80)))
    n_nodes, n_cores = draw(st.integers(1, n_ranks)), draw(st.integers(1, 4))
    nodes = [rank % n_nodes for rank in range(n_ranks)]
    cores = [rank // n_nodes % n_cores for rank in range(n_ranks)]
    return on_machine(text, nodes, cores, draw(st.integers(1, 3)))


compiled = st.randoms(use_true_random=False).map(random_plan)
plans = st.one_of(compiled, clustered(), schedules())


def simulated(plan: Plan, network: Network) -> tuple[Plan, Network, Timeline]:
    """Simulate; where long messages would deadlock, with none that are long."""
    try:
        return plan, network, simulate(plan, network)
    except DeadlockError:
        network = network.replace(eager_limit_bytes=MANY_BYTES)
        return plan, network, simulate(plan, network)


cases = st.builds(simulated, plans, networks)
"""Plans, their networks and their timelines."""


def twice_as_slow(network: Network) -> Network:
    """Return a network all of whose times are doubled, which is exact in floating point."""

    def doubled(value: object, name: str = "") -> object:
        if isinstance(value, dict):
            return {name: doubled(one, name) for name, one in value.items()}
        is_time = "_ns" in name or name.endswith("_s")
        return 2 * value if is_time and isinstance(value, int | float) else value

    return Network.model_validate(doubled(network.model_dump()))
